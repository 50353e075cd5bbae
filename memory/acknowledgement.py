"""Acknowledgements: user turns that only say "got it" and that the model need not see again."""

CLOSERS = (
    *(
        "收到",
        "收到了",
        "谢谢",
        "谢谢你",
        "谢谢您",
        "谢谢啦",
        "多谢",
        "感谢",
        "非常感谢",
        "太感谢了",
        "谢啦",
        "谢了",
        "辛苦",
        "辛苦了",
    ),
    *("了解", "了解了", "明白", "明白了", "知道了", "懂了", "清楚了", "哦", "噢", "謝謝", "多謝", "感謝", "瞭解"),
    *("👌", "👍", "🙏", "🆗", "[强]", "[赞]", "[抱拳]", "[握手]"),
    *("thanks", "thank you", "thx", "got it", "gotcha", "noted", "understood", "i see"),
)
"""Words after which a conversation can rest: they never answer a question of the assistant."""

ASSENTS = (
    *(
        "好",
        "好的",
        "好吧",
        "好呀",
        "好啊",
        "好嘞",
        "好滴",
        "嗯",
        "恩",
        "是",
        "是的",
        "是啊",
        "对",
        "对的",
        "對",
        "没错",
        "行",
    ),
    *("可以", "可以的", "没问题", "沒問題", "当然"),
    *("ok", "okay", "yes", "yeah", "yep", "sure", "right", "alright", "fine"),
)
"""Words that may be the answer to a question of the assistant."""

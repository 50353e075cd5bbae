"""The few texts that only this channel shows: an answer that is shown in one place cannot always go on there."""

THINKING = "……"
RESTARTING = "网关重启中，回答稍后送达。"
NOT_TAKEN = "网关正在重启，这条消息没有收到，请稍后重新发送。"
LATER = "（回答需要更多时间，完整内容稍后另行送达）"
MERGED = "已与后一条消息合并回答。"
NOTHING = "（没有可显示的内容）"

"""DingTalk (钉钉): events by long connection or HTTP in, session replies or robot API calls out."""

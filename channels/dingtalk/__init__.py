"""DingTalk (钉钉): stream or HTTP events in, session replies or robot API calls out."""

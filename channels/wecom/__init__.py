"""WeCom (企业微信): the 智能机器人 over its long connection."""

"""Feishu 飞书: long connection and webhook in, open API out."""

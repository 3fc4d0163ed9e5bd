.PHONY: protos
protos:
	.venv/bin/python tools/protos.py

"""One turn: who answers, with which window and tools; the model asked, the answer stored; then the summary."""

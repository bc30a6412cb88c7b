"""Serves one GGUF file with llama.cpp's own HTTP server (OpenAI-compatible) on 127.0.0.1.

usage: serve.py --model FILE --alias NAME --port N --token TEXT [--lifeline]

--token is unused here: it marks this process by its command line, so that `cargo xtask local-model
stop` never ends an unrelated process that later got the same id.
--lifeline ends the server when standard input closes, which happens however its owner ends,
SIGKILL included.
"""

import argparse
import os
import signal
import sys
import threading

import xllamacpp

# Toolhold's prompt with twenty tools and a few results stays below this.
CONTEXT_OF_ONE_SLOT = 8192
# The second one keeps a cancelled request from holding up the next.
SLOTS = 2
# llama.cpp would keep up to 8 GiB of old prompts.
PROMPT_CACHE_MIB = 256


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", required=True)
    arguments.add_argument("--alias", required=True)
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--token", required=True)
    arguments.add_argument("--lifeline", action="store_true")
    arguments = arguments.parse_args()

    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    if arguments.lifeline:
        threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()

    server = xllamacpp.Server(parameters(arguments))
    print("listening on", server.listening_address, flush=True)
    over.wait()
    # Not a return: unloading the weights politely takes seconds, and the system frees them anyway.
    os._exit(0)


def parameters(arguments):
    p = xllamacpp.CommonParams()
    p.model.path = arguments.model
    p.model_alias = {arguments.alias}
    p.hostnames, p.port = ["127.0.0.1"], arguments.port
    p.n_parallel, p.n_ctx = SLOTS, CONTEXT_OF_ONE_SLOT * SLOTS
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = os.cpu_count() or 2
    p.cache_ram_mib = PROMPT_CACHE_MIB
    p.use_jinja = True
    p.endpoint_metrics = p.endpoint_slots = p.endpoint_props = True
    p.ui = False
    return p


if __name__ == "__main__":
    main()

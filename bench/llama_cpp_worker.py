"""One measurement of llama.cpp through llama-cpp-python, for compare_llama_cpp.py: a job as JSON on stdin, the answer as JSON on
stdout. A process of its own, run with the interpreter that has the package."""
import ctypes
import json
import sys
import time

import llama_cpp


@llama_cpp.llama_log_callback
def silent(level, text, data):
    """llama.cpp's log goes nowhere."""


class Engine:
    def __init__(self, job):
        llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(job["model"].encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"llama.cpp does not open {job['model']}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = job["context"]
        params.n_threads = params.n_threads_batch = job["threads"]
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.batch_tokens = llama_cpp.llama_n_batch(self.context)

    def vocab_size(self):
        return llama_cpp.llama_vocab_n_tokens(self.vocab)

    def reset(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def extend(self, ids):
        """Appends the ids in as few batches as allowed; logits of each batch's last token."""
        for at in range(0, len(ids), self.batch_tokens):
            part = ids[at: at + self.batch_tokens]
            tokens = (llama_cpp.llama_token * len(part))(*part)
            if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(tokens, len(part))) != 0:
                raise SystemExit("llama.cpp: decode failed")
        llama_cpp.llama_synchronize(self.context)

    def best(self):
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)[: self.vocab_size()]
        return logits.index(max(logits))

    def tokenize(self, text):
        data = text.encode()
        tokens = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), tokens, len(tokens), True, True)
        return list(tokens[:count])


def ids_of(count, vocab):
    """The ids that `tenon bench` takes."""
    return [(i * 7919 + 1) % vocab for i in range(count)]


def seconds_of(engine, job):
    """As RunBenchmark of Tenon: an empty cache, `depth` tokens, then the timed ones, together or one by one."""
    engine.reset()
    if job["depth"]:
        engine.extend(ids_of(job["depth"], engine.vocab_size()))
    ids = ids_of(job["tokens"], engine.vocab_size())
    begin = time.perf_counter()
    if job["what"] == "prompt":
        engine.extend(ids)
    else:
        for token in ids:
            engine.extend([token])
    return time.perf_counter() - begin


def first_token(job):
    """From loading to the first token; interpreter and imports came before."""
    begin = time.perf_counter()
    engine = Engine(job)
    engine.extend(engine.tokenize(job["text"]))
    engine.best()
    return time.perf_counter() - begin


def main():
    job = json.load(sys.stdin)
    if job["what"] == "cold":
        seconds = first_token(job)
    else:
        engine = Engine(job)
        seconds_of(engine, job)  # warms up
        seconds = seconds_of(engine, job)
    json.dump({"seconds": seconds, "version": llama_cpp.__version__,
               "system": llama_cpp.llama_print_system_info().decode()}, sys.stdout)


if __name__ == "__main__":
    main()

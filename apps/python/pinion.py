"""Language models from Hugging Face folders on the CPU: the C interface of libpinion (apps/library/pinion.h) as classes.

Calls release the interpreter's lock, which callbacks take again. Arrays are NumPy's; without NumPy, memoryviews of the
same shape.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
from ctypes import POINTER, Structure, byref, sizeof
from ctypes import c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p

try:
    import numpy
except ImportError:
    numpy = None

__all__ = ["Error", "Model", "Result", "Session", "build"]

_API_VERSION = 1
_MEMORY = 4  # PINION_ERROR_MEMORY
_Ids, _Texts = POINTER(c_int32), POINTER(c_char_p)
_OnToken = ctypes.CFUNCTYPE(c_int, c_void_p, c_int32, POINTER(ctypes.c_char), c_size_t)


class Error(RuntimeError):
    """A failed call, in one line: the problem, its place, the expected and the actual value."""


# --- The structs of pinion.h, in its order


class _ModelOptions(Structure):
    _fields_ = [("size", c_size_t), ("quant", c_char_p), ("head", c_char_p), ("kv", c_char_p), ("keep", _Texts),
                ("keep_count", c_size_t), ("no_rotate", c_int), ("calibrate", c_char_p), ("threads", c_int32),
                ("cores", c_char_p), ("kernels", c_char_p), ("prefill_chunk", c_int64), ("no_cache", c_int),
                ("cache_folder", c_char_p), ("user", c_void_p), ("on_progress", c_void_p), ("on_message", c_void_p),
                ("lora", _Texts), ("lora_count", c_size_t)]


class _ModelInfo(Structure):
    _fields_ = [("size", c_size_t), ("family", c_char_p), ("quant", c_char_p), ("kv", c_char_p), ("kernels", c_char_p),
                ("threads", c_int32), ("has_tokenizer", c_int32), ("vocab_size", c_int64), ("context_length", c_int64),
                ("weight_bytes", c_int64), ("from_cache", c_int32)]


class _Chat(Structure):
    _fields_ = [("size", c_size_t), ("messages", c_char_p), ("tools", c_char_p), ("variables", c_char_p),
                ("template_name", c_char_p), ("no_generation_prompt", c_int), ("continue_final_message", c_int)]


class _Setting(Structure):
    _fields_ = [("name", c_char_p), ("value", c_double)]


class _GenerateOptions(Structure):
    _fields_ = [("size", c_size_t), ("max_tokens", c_int64), ("settings", POINTER(_Setting)),
                ("setting_count", c_size_t), ("seed", POINTER(c_uint64)), ("stops", _Texts), ("stop_count", c_size_t),
                ("dry_breakers", _Texts), ("dry_breaker_count", c_size_t), ("ignore_end", c_int), ("user", c_void_p),
                ("on_token", _OnToken)]


class _Result(Structure):
    _fields_ = [("status", c_int), ("error", c_char_p), ("finish", c_int), ("id_count", c_size_t), ("ids", _Ids),
                ("text_bytes", c_size_t), ("text", c_void_p), ("reused_tokens", c_int64),
                ("prefilled_tokens", c_int64), ("prefill_seconds", c_double), ("decode_seconds", c_double),
                ("seed", c_uint64), ("logits_hash", c_uint64)]


class _Request(Structure):
    _fields_ = [("prompt", _Ids), ("count", c_size_t), ("options", POINTER(_GenerateOptions))]


class _EmbedOptions(Structure):
    _fields_ = [("size", c_size_t), ("pooling", c_char_p), ("prompt_name", c_char_p), ("query", c_char_p),
                ("dimensions", c_int64), ("parallel", c_int64)]


# --- The library, beside this file (pip) or where the system finds libraries

_beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"libpinion.so.{_API_VERSION}")
_library = ctypes.CDLL(_beside if os.path.exists(_beside) else os.path.basename(_beside))


def _function(name, result, *arguments):
    function = getattr(_library, name)
    function.restype, function.argtypes = result, arguments
    return function


def _call(name, *arguments):
    """A function of pinion.h that returns a status, which becomes an exception."""
    function = _function(name, c_int, *arguments)

    def call(*values):
        status = function(*values)
        if status == _MEMORY:
            raise MemoryError(_error_text().decode())
        if status:
            raise Error(_error_text().decode(errors="replace"))

    return call


_p = c_void_p  # handles, and addresses of memory that pinion_free releases
_error_text = _function("pinion_error_text", c_char_p)
_free = _function("pinion_free", None, _p)
_model_open = _call("pinion_model_open", c_char_p, POINTER(_ModelOptions), POINTER(_p))
_model_close = _function("pinion_model_close", None, _p)
_model_describe = _call("pinion_model_describe", _p, POINTER(_ModelInfo))
_model_end_ids = _call("pinion_model_end_ids", _p, POINTER(_p), POINTER(c_size_t))
_tokenize = _call("pinion_tokenize", _p, c_char_p, c_size_t, c_int, POINTER(_p), POINTER(c_size_t))
_detokenize = _call("pinion_detokenize", _p, _Ids, c_size_t, c_int, POINTER(_p), POINTER(c_size_t))
_chat_render = _call("pinion_chat_render", _p, POINTER(_Chat), POINTER(_p), POINTER(_p), POINTER(c_size_t))
_session_open = _call("pinion_session_open", _p, c_int64, POINTER(_p))
_session_close = _function("pinion_session_close", None, _p)
_session_context = _function("pinion_session_context", c_int64, _p)
_session_ids = _call("pinion_session_ids", _p, POINTER(_p), POINTER(c_size_t))
_session_evaluate = _call("pinion_session_evaluate", _p, _Ids, c_size_t, c_int, POINTER(c_float), c_size_t)
_session_rewind = _call("pinion_session_rewind", _p, c_int64, POINTER(c_int64))
_session_interrupt = _function("pinion_session_interrupt", None, _p)
_session_save = _call("pinion_session_save", _p, POINTER(_p), POINTER(c_size_t))
_session_load = _call("pinion_session_load", _p, c_char_p, c_size_t)
_result_free = _function("pinion_result_free", None, POINTER(_Result))
_generate = _call("pinion_generate", _p, _Ids, c_size_t, POINTER(_GenerateOptions), POINTER(POINTER(_Result)))
_generate_batch = _call("pinion_generate_batch", _p, POINTER(_Request), c_size_t, c_int64, POINTER(POINTER(_Result)))
_embed = _call("pinion_embed", _p, _Texts, c_size_t, POINTER(_EmbedOptions), POINTER(_p), POINTER(c_size_t))

__version__ = _function("pinion_version", c_char_p)().decode()
build = _function("pinion_build", c_char_p)().decode()


# --- Conversions


def _bytes(text):
    return None if text is None else text.encode()


def _texts(texts):
    if isinstance(texts, (str, bytes)):
        raise TypeError("want a list of texts, have one text")
    return (c_char_p * len(texts))(*map(_bytes, texts))


def _array_of_ids(ids):
    return (c_int32 * len(ids))(*array.array("i", ids))  # which refuses numbers that ctypes would wrap


def _taken(pointer, count):
    """Ids of the library, which are freed."""
    ids = ctypes.cast(pointer, _Ids)[:count]
    _free(pointer)
    return ids


def _ids_of(function, handle):
    pointer, count = c_void_p(), c_size_t()
    function(handle, byref(pointer), byref(count))
    return _taken(pointer, count.value)


def _shaped(floats, *shape):
    """A ctypes array as an array of this shape, over the same memory."""
    if numpy is not None:
        return numpy.ctypeslib.as_array(floats).reshape(shape)
    return memoryview(floats).cast("B").cast("f", shape) if all(shape) else memoryview(b"").cast("f")


def _json(value):
    return None if value is None else json.dumps(value).encode()


class _Sampling:
    """Options of a generation, with the arrays that they point to. An exception in on_token ends the generation."""

    def __init__(self, on_token=None, max_tokens=256, seed=None, stop=(), ignore_end=False, **settings):
        self.raised = None

        def put(_, id, text, count):
            try:
                return on_token(id, text[:count].decode(errors="replace")) is False
            except BaseException as failure:  # raised again by the caller of generate
                self.raised = failure
                return 1

        self.options = o = _GenerateOptions(sizeof(_GenerateOptions))
        o.max_tokens = -1 if max_tokens == 0 else max_tokens
        o.settings = (_Setting * len(settings))(*((name.encode(), value) for name, value in settings.items()))
        o.setting_count = len(settings)
        o.seed = None if seed is None else ctypes.pointer(c_uint64(array.array("Q", [seed])[0]))
        o.stops, o.stop_count = _texts(stop), len(stop)
        o.ignore_end = bool(ignore_end)
        o.on_token = _OnToken(put) if on_token is not None else _OnToken()


class Result:
    """The end of a generation: ids, text (None without a tokenizer), finish ("stop", "length", "context"), reused_tokens,
    prefilled_tokens, prefill_seconds, decode_seconds, seed, logits_hash."""

    def __init__(self, pointer):
        r = pointer.contents
        if r.status:
            raise Error(r.error.decode(errors="replace"))
        self.ids = r.ids[: r.id_count]
        self.text = ctypes.string_at(r.text, r.text_bytes).decode(errors="replace") if r.text else None
        self.finish = ("stop", "length", "context")[r.finish]
        for name in ("reused_tokens", "prefilled_tokens", "prefill_seconds", "decode_seconds", "seed", "logits_hash"):
            setattr(self, name, getattr(r, name))


class Model:
    """A model, opened from a folder, a GGUF file, or ORG/NAME in the Hugging Face cache."""

    def __init__(self, folder: str, *, quant: str | None = None, head: str | None = None, kv: str | None = None,
                 keep=(), calibrate: str | None = None, threads: int = 0, cores: str | None = None,
                 kernels: str | None = None, no_cache: bool = False, cache_folder: str | None = None, lora=()):
        self._handle = c_void_p()
        options = _ModelOptions(sizeof(_ModelOptions), _bytes(quant), _bytes(head), _bytes(kv), _texts(keep), len(keep), 0,
                                _bytes(calibrate), threads, _bytes(cores), _bytes(kernels), 0, no_cache,
                                _bytes(cache_folder), None, None, None, _texts(lora), len(lora))
        _model_open(os.fsencode(folder), byref(options), byref(self._handle))
        info = self._info = _ModelInfo(sizeof(_ModelInfo))
        _model_describe(self._handle, byref(info))
        self.family, self.quant, self.kv, self.kernels = (
            text.decode() for text in (info.family, info.quant, info.kv, info.kernels))
        self.threads, self.vocab_size, self.context_length = info.threads, info.vocab_size, info.context_length

    def __del__(self):
        _model_close(getattr(self, "_handle", None))

    @property
    def end_ids(self) -> list[int]:
        return _ids_of(_model_end_ids, self._handle)

    def tokenize(self, text: str, add_special: bool = True) -> list[int]:
        """Text to ids."""
        data, pointer, count = text.encode(errors="surrogatepass"), c_void_p(), c_size_t()
        _tokenize(self._handle, data, len(data), add_special, byref(pointer), byref(count))
        return _taken(pointer, count.value)

    def detokenize(self, ids, keep_special: bool = False) -> str:
        """Ids to text."""
        pointer, count = c_void_p(), c_size_t()
        _detokenize(self._handle, _array_of_ids(ids), len(ids), keep_special, byref(pointer), byref(count))
        text = ctypes.string_at(pointer, count.value).decode(errors="replace")
        _free(pointer)
        return text

    def chat(self, messages, tools=None, variables=None, add_generation_prompt: bool = True,
             template_name: str | None = None, continue_final_message: bool = False):
        """Renders a conversation by the folder's chat template: (text, ids). Ids are None without a tokenizer."""
        chat = _Chat(sizeof(_Chat), _json(messages), _json(tools), _json(variables), _bytes(template_name),
                     not add_generation_prompt, continue_final_message)
        text, ids, count = c_void_p(), c_void_p(), c_size_t()
        has_ids = bool(self._info.has_tokenizer)
        _chat_render(self._handle, byref(chat), byref(text), byref(ids) if has_ids else None, byref(count))
        rendered = ctypes.string_at(text).decode(errors="replace")
        _free(text)
        return rendered, _taken(ids, count.value) if has_ids else None

    def session(self, context: int = 0) -> Session:
        """A session: the model's state for one sequence of tokens."""
        return Session(self, context)

    def generate_batch(self, prompts, parallel: int = 0, **words) -> list[Result]:
        """Runs many requests at once, each with the same result as alone; keywords as for Session.generate."""
        if "on_token" in words:
            raise TypeError("generate_batch has no on_token")
        sampling = _Sampling(**words)
        ids = [_array_of_ids(self._prompt(prompt)) for prompt in prompts]
        requests = (_Request * len(ids))(*((each, len(each), ctypes.pointer(sampling.options)) for each in ids))
        results = (POINTER(_Result) * len(ids))()
        _generate_batch(self._handle, requests, len(ids), parallel, results)
        try:
            return [Result(result) for result in results]
        finally:
            for result in results:
                _result_free(result)

    def embed(self, texts, *, pooling: str | None = None, prompt_name: str | None = None, query: str | None = None,
              dimensions: int = 0, parallel: int = 0):
        """Vectors of texts, or with a query the scores of documents: an array [texts, width]."""
        options = _EmbedOptions(sizeof(_EmbedOptions), _bytes(pooling), _bytes(prompt_name), _bytes(query), dimensions,
                                parallel)
        pointer, width = c_void_p(), c_size_t()
        _embed(self._handle, _texts(texts), len(texts), byref(options), byref(pointer), byref(width))
        floats = (c_float * (len(texts) * width.value)).from_buffer_copy(
            ctypes.string_at(pointer, 4 * len(texts) * width.value))
        _free(pointer)
        return _shaped(floats, len(texts), width.value)

    def _prompt(self, prompt):
        return self.tokenize(prompt) if isinstance(prompt, str) else prompt


class Session:
    """The state of a model for one sequence of tokens; for one thread at a time, except interrupt()."""

    def __init__(self, model: Model, context: int = 0):
        self._model, self._handle = model, c_void_p()  # an open session keeps its model
        _session_open(model._handle, context, byref(self._handle))

    def __del__(self):
        _session_close(getattr(self, "_handle", None))

    @property
    def context(self) -> int:
        return _session_context(self._handle)

    @property
    def ids(self) -> list[int]:
        return _ids_of(_session_ids, self._handle)

    def evaluate(self, ids, all: bool = False):
        """Appends ids and returns the logits after the last one, [vocab_size], or after each, [ids, vocab_size]."""
        width = self._model.vocab_size
        floats = (c_float * ((len(ids) if all else 1) * width))()
        _session_evaluate(self._handle, _array_of_ids(ids), len(ids), all, floats, len(floats))
        return _shaped(floats, len(ids), width) if all else _shaped(floats, width)

    def generate(self, prompt, on_token=None, **words) -> Result:
        """Continues a text or ids. on_token(id, text) may return False to end the generation. Keywords: max_tokens, seed,
        stop, ignore_end, and sampler settings such as temperature=0."""
        sampling, ids = _Sampling(on_token, **words), self._model._prompt(prompt)
        result = POINTER(_Result)()
        _generate(self._handle, _array_of_ids(ids), len(ids), byref(sampling.options), byref(result))
        try:
            if sampling.raised is not None:
                raise sampling.raised
            return Result(result)
        finally:
            _result_free(result)

    def rewind(self, tokens: int) -> int:
        """Keeps the first tokens; returns the number kept."""
        left = c_int64()
        _session_rewind(self._handle, tokens, byref(left))
        return left.value

    def interrupt(self) -> None:
        """Ends a generation after its token, an evaluation after its pass. From any thread."""
        _session_interrupt(self._handle)

    def save(self) -> bytes:
        """The state, for other processes and machines."""
        pointer, count = c_void_p(), c_size_t()
        _session_save(self._handle, byref(pointer), byref(count))
        state = ctypes.string_at(pointer, count.value)
        _free(pointer)
        return state

    def load(self, state: bytes) -> None:
        """Replaces the session's tokens by a saved state."""
        _session_load(self._handle, state, len(state))

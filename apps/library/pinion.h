/* C interface of Pinion: language models from Hugging Face folders on the CPU. C11 and C++.
 *
 *   pinion_model *model;
 *   if (pinion_model_open("DIR", NULL, &model) != PINION_OK) { puts(pinion_error_text()); ... }
 *
 * README.md next to this file has a complete program and its build.
 *
 * Results. Token ids and logits are bit for bit those of `pinion generate` and `pinion logits` for the same folder and
 * mode, on every machine, for any number of threads, alone or in a batch.
 *
 * Errors. Functions that can fail return a pinion_status; pinion_error_text() then gives one line with the problem, its
 * location, and the expected and actual value. Handles and results to be created are NULL then; everything else that
 * the arguments point to is unchanged, unless a comment states otherwise. No C++ exception leaves the library. It does
 * not exit, print, or change signal handlers. If a file is shortened while its model is open, reading it raises SIGBUS,
 * as in every program that maps files.
 *
 * Ownership. The caller owns everything returned through `out`, and releases it with the function named in the comment.
 * Arguments are read only during the call and may be freed after it. Closing or freeing NULL does nothing.
 *
 * Threads. Several sessions share a model. Tokens, templates and descriptions of a model may be used from any thread at
 * any time. Passes of one model (opening, evaluating, generating, saving, loading) wait for each other, because they
 * share its team of threads. A session is for one thread at a time, except pinion_session_interrupt. The calling thread
 * is part of the team: it is pinned to a core during a pass, and restored afterwards. Every thread that runs passes
 * starts a team of its own, so use a single thread for them, with a stack of the usual 8 MB. Callbacks run on the
 * calling thread, except pinion_model_options.on_message. A callback must not throw, longjmp, or close handles in use;
 * passes of the same model fail in it with PINION_ERROR_BUSY. After fork() the child must not use a model.
 * pinion_model_open and pinion_chat_render run the chat template in short-lived child processes, which a handler of
 * SIGCHLD may notice.
 *
 * Structs of options begin with their size. Fields that are 0 have their default, so that programs work unchanged with
 * later versions, which add fields at the end: `pinion_model_options options = {.size = sizeof options};`
 */
#ifndef PINION_H
#define PINION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PINION_API __attribute__((visibility("default")))
#else
#define PINION_API
#endif

/* Version of the interface: a program needs a library of the version that it was compiled for. Additions do not change
 * it. It is part of the SONAME, libpinion.so.1. */
#define PINION_API_VERSION 1
PINION_API uint32_t pinion_api_version(void);

PINION_API const char* pinion_version(void); /* of the package: "0.1.0" */
PINION_API const char* pinion_build(void);   /* output of `pinion --version`, without the final newline */

typedef enum pinion_status {
  PINION_OK = 0,
  PINION_ERROR_ARGUMENT = 1, /* invalid argument: NULL, out of range, outside the vocabulary, an unknown name */
  PINION_ERROR_MODEL = 2,    /* the folder or its files */
  PINION_ERROR_CONTEXT = 3,  /* more tokens than the session or the model can hold */
  PINION_ERROR_MEMORY = 4,   /* out of memory */
  PINION_ERROR_TEMPLATE = 5, /* missing, refuses the conversation, or takes too much time or memory */
  PINION_ERROR_STATE = 6,    /* a saved state is damaged or from another model */
  PINION_ERROR_BUSY = 7,     /* called from a callback of the same model, or while this thread opens a model */
  PINION_ERROR_RUN = 8,      /* a pass failed: NaN or infinity in its logits, or pinion_session_interrupt */
  PINION_ERROR_INTERNAL = 9  /* a bug in this library */
} pinion_status;

/* Message of this thread's last failure, UTF-8; "" before the first. Valid until this thread's next failing call. */
PINION_API const char* pinion_error_text(void);

/* Frees ids, texts and states that the functions below have allocated. */
PINION_API void pinion_free(void* memory);

/* --- Models --- */

typedef struct pinion_model pinion_model;

typedef enum pinion_message {
  PINION_NOTE = 0,    /* information */
  PINION_WARNING = 1, /* a problem that does not stop the library: cached weights could not be written, for example */
  PINION_DOUBT = 2    /* damaged cached weights were in use: results since opening may be wrong */
} pinion_message;

/* The texts are those of the command line's options of the same names (`pinion generate --help`); NULL: the default. */
typedef struct pinion_model_options {
  size_t size;             /* sizeof(pinion_model_options) */
  const char* quant;       /* "none", "w8a8", "w4a8", "w4a8+" */
  const char* head;        /* "none", "w8", "w4" */
  const char* kv;          /* "f32", "bf16", "q8" */
  const char* const* keep; /* [keep_count]: matrices whose name contains one of these stay bf16 */
  size_t keep_count;
  int no_rotate;            /* not 0: inputs of quantised matrices are not rotated */
  const char* calibrate;    /* "self", "none" or one text's file, as --calibrate; NULL: self for w4a8(+), else none */
  int32_t threads;          /* 0: as tuned by `pinion tune`, else one per useful core; at most 256 */
  const char* cores;        /* "0-3,8", "big" */
  const char* kernels;      /* name of a kernel table in `pinion cpu` */
  int64_t prefill_chunk;    /* prompt tokens per pass, 1 to 65536; changes speed and memory only */
  int no_cache;             /* not 0: packs the weights without reading or writing the weight cache */
  const char* cache_folder; /* NULL: the cache of the program `pinion` */
  void* user;               /* first argument of the callbacks */
  void (*on_progress)(void* user, int64_t done, int64_t total); /* of loading: bytes, or steps of the calibration */
  /* Called from any thread, including the library's own, until the model and all its sessions are closed. NULL: no
   * messages. text: UTF-8, valid during the call. */
  void (*on_message)(void* user, pinion_message kind, const char* text);
  const char* const* lora; /* [lora_count]: LoRA adapters, "PATH" or "PATH=FACTOR" */
  size_t lora_count;
} pinion_model_options;

/* folder: a model folder in the Hugging Face layout, or ORG/NAME in the Hugging Face cache. options: NULL for the
 * defaults. Loading takes seconds, less with cached packed weights. */
PINION_API pinion_status pinion_model_open(const char* folder, const pinion_model_options* options, pinion_model** out);

/* Open sessions keep the memory that they need. */
PINION_API void pinion_model_close(pinion_model* model);

/* The texts are valid while the model is open. */
typedef struct pinion_model_info {
  size_t size;         /* sizeof(pinion_model_info), set by the caller */
  const char* family;  /* "llama" */
  const char* quant;   /* "w8a8" */
  const char* kv;      /* "q8" */
  const char* kernels; /* "avx512_vnni" */
  int32_t threads;     /* of the decode team */
  int32_t has_tokenizer;
  int64_t vocab_size;     /* length of a row of logits */
  int64_t context_length; /* maximum number of tokens */
  int64_t weight_bytes;   /* of the packed matrices */
  int32_t from_cache;     /* not 0: the packed weights came from the cache */
} pinion_model_info;

PINION_API pinion_status pinion_model_describe(const pinion_model* model, pinion_model_info* out);

/* The ids that end a text, of the model's and the tokenizer's files and the chat template, ascending: *out [*count].
 * Release with pinion_free(*out). */
PINION_API pinion_status pinion_model_end_ids(const pinion_model* model, int32_t** out, size_t* count);

/* --- Tokens: these functions fail with PINION_ERROR_MODEL if the folder has no tokenizer --- */

/* text: [bytes], UTF-8; invalid bytes become U+FFFD. add_special: not 0 adds BOS and EOS as configured by the folder,
 * like prompts of `pinion generate`. Special tokens spelled in the text become special tokens; for user input see
 * pinion_chat_render. *out [*count]; release with pinion_free(*out). */
PINION_API pinion_status pinion_tokenize(const pinion_model* model, const char* text, size_t bytes, int add_special,
                                         int32_t** out, size_t* count);

/* keep_special: not 0 includes special tokens. *out [*bytes], UTF-8, zero-terminated; bytes may be NULL. Release with
 * pinion_free(*out). Fails on ids outside the vocabulary. */
PINION_API pinion_status pinion_detokenize(const pinion_model* model, const int32_t* ids, size_t count,
                                           int keep_special, char** out, size_t* bytes);

/* Arguments of transformers' apply_chat_template, as zero-terminated JSON texts. */
typedef struct pinion_chat {
  size_t size;                /* sizeof(pinion_chat) */
  const char* messages;       /* [{"role": "user", "content": "Hello"}] */
  const char* tools;          /* list of schemas; NULL: none */
  const char* variables;      /* {"enable_thinking": false}; NULL: none */
  const char* template_name;  /* in folders with several; NULL: tool_use with tools, else default */
  int no_generation_prompt;   /* not 0: ends after the last message */
  int continue_final_message; /* not 0: ends behind the text of the last message, so that a model continues it */
} pinion_chat;

/* The prompt that the folder's chat template makes of a conversation, as text and as ids. In the ids, special tokens
 * spelled in messages are plain text. Both outputs are optional; without ids no tokenizer is needed. A prompt that
 * contains U+0000 is available as ids only. Release with pinion_free(*text), pinion_free(*ids). */
PINION_API pinion_status pinion_chat_render(const pinion_model* model, const pinion_chat* chat, char** text,
                                            int32_t** ids, size_t* count);

/* --- Sessions: the model's state for one sequence of tokens --- */

typedef struct pinion_session pinion_session;

/* context: maximum number of tokens, limited by the model's context length; 0: what fits in half of the free memory.
 * Allocates the KV cache at once; PINION_ERROR_MEMORY reports the sizes if it does not fit. */
PINION_API pinion_status pinion_session_open(pinion_model* model, int64_t context, pinion_session** out);
PINION_API void pinion_session_close(pinion_session* session);

PINION_API int64_t pinion_session_context(const pinion_session* session);

/* The tokens of the session: *out [*count]. Release with pinion_free(*out). */
PINION_API pinion_status pinion_session_ids(const pinion_session* session, int32_t** out, size_t* count);

/* Appends ids [count] and writes the logits of the next token: after the last id, [vocab_size], or with `all` (not 0)
 * after each id, [count, vocab_size]. logits may be NULL; room: its size in floats. Too many tokens and ids outside the
 * vocabulary fail and leave the session unchanged. After PINION_ERROR_RUN the contents of logits are undefined; the
 * session keeps the tokens evaluated before an interruption, and is empty after other failures. */
PINION_API pinion_status pinion_session_evaluate(pinion_session* session, const int32_t* ids, size_t count, int all,
                                                 float* logits, size_t room);

/* Keeps the first `tokens` tokens. Models with recurrent layers cannot return to every position: *left, which may be
 * NULL, gets the number of tokens kept, at most `tokens`; evaluate the others again. */
PINION_API pinion_status pinion_session_rewind(pinion_session* session, int64_t tokens, int64_t* left);

/* From any thread. An evaluation stops after the current pass and fails with PINION_ERROR_RUN; a generation stops after
 * the current token (PINION_FINISH_STOP). Has no effect on later calls. */
PINION_API void pinion_session_interrupt(pinion_session* session);

/* The state of a session with at least one token, for other processes and machines: *out [*bytes]. Release with
 * pinion_free(*out). */
PINION_API pinion_status pinion_session_save(pinion_session* session, void** out, size_t* bytes);

/* Replaces the session's tokens. Detects damage and states of other models or modes, which leave the session empty. */
PINION_API pinion_status pinion_session_load(pinion_session* session, const void* state, size_t bytes);

/* --- Generation --- */

/* A sampler setting by name: temperature (0: greedy), top_k, top_p, min_p, repetition_penalty, presence_penalty,
 * frequency_penalty, repeat_last_n, typical_p, top_n_sigma, xtc_probability, xtc_threshold, dry_multiplier, dry_base,
 * dry_allowed_length. */
typedef struct pinion_setting {
  const char* name;
  double value;
} pinion_setting;

/* Called after each token, and once with id -1 if text was held back at the end. text: [bytes], the characters that the
 * token completes; often empty, because a token may end within a character or a stop text. Valid during the call.
 * Return not 0 to end the generation. */
typedef int (*pinion_on_token)(void* user, int32_t id, const char* text, size_t bytes);

typedef struct pinion_generate_options {
  size_t size;                    /* sizeof(pinion_generate_options) */
  int64_t max_tokens;             /* 0: 256; -1: none, the prompt is only evaluated */
  const pinion_setting* settings; /* [setting_count]; others are taken from generation_config.json */
  size_t setting_count;
  const uint64_t* seed;     /* NULL: random, see pinion_result.seed */
  const char* const* stops; /* [stop_count]: the generation ends before one of these texts; needs a tokenizer */
  size_t stop_count;
  const char* const* dry_breakers; /* [dry_breaker_count]: texts that end repetitions for DRY; 0: its author's */
  size_t dry_breaker_count;
  int ignore_end;           /* not 0: continues after an end-of-sequence token */
  void* user;               /* first argument of on_token */
  pinion_on_token on_token; /* NULL: none */
} pinion_generate_options;

typedef enum pinion_finish {
  PINION_FINISH_STOP = 0,   /* an end-of-sequence token, a stop text, the callback, or an interruption */
  PINION_FINISH_LENGTH = 1, /* max_tokens */
  PINION_FINISH_CONTEXT = 2 /* the session is full */
} pinion_finish;

typedef struct pinion_result {
  pinion_status status; /* PINION_OK, unless a request of a batch failed alone */
  const char* error;    /* message of that failure; else "" */
  pinion_finish finish;
  size_t id_count;
  const int32_t* ids; /* [id_count]: the generated ids, without a final end-of-sequence id */
  size_t text_bytes;
  const char* text;      /* [text_bytes], UTF-8, zero-terminated, up to a stop text: continues the prompt's text,
                            including a leading space; NULL without a tokenizer */
  int64_t reused_tokens; /* of the prompt: already in the session */
  int64_t prefilled_tokens;
  double prefill_seconds; /* until the first token's logits; 0 in a batch */
  double decode_seconds;
  uint64_t seed;
  uint64_t logits_hash; /* of all logits that tokens were drawn from, as in `pinion generate --json` */
} pinion_result;

PINION_API void pinion_result_free(pinion_result* result);

/* Continues prompt [count], which is the whole sequence: tokens that the session has already are not evaluated again,
 * other tokens of the session are dropped. options: NULL for the defaults. Release with pinion_result_free(*out). */
PINION_API pinion_status pinion_generate(pinion_session* session, const int32_t* prompt, size_t count,
                                         const pinion_generate_options* options, pinion_result** out);

typedef struct pinion_request {
  const int32_t* prompt; /* [count] */
  size_t count;
  const pinion_generate_options* options; /* NULL for the defaults */
} pinion_request;

/* Runs many requests at once; each result is the same as alone. The caller provides results [count] and releases each
 * element with pinion_result_free. parallel: requests that run at the same time; 0: 8. Callbacks of different requests
 * alternate. Invalid requests fail together before any generation begins. */
PINION_API pinion_status pinion_generate_batch(pinion_model* model, const pinion_request* requests, size_t count,
                                               int64_t parallel, pinion_result** results);

/* --- Vectors and scores --- */

typedef struct pinion_embed_options {
  size_t size;             /* sizeof(pinion_embed_options) */
  const char* pooling;     /* "last", "mean", "cls", "max" or "weightedmean"; NULL: that of the folder's modules.json */
  const char* prompt_name; /* a prompt of the folder, such as "query"; NULL: the folder's default */
  const char* query;       /* not NULL: the texts are documents that a reranker scores for it */
  int64_t dimensions;      /* the first numbers of each vector only; 0: all */
  int64_t parallel;        /* texts at once; 0: chosen by the library. Never changes a bit */
} pinion_embed_options;

/* Vectors of UTF-8 texts: *out [count][*width], or a reranker's scores before the sigmoid. Texts longer than the
 * model's maximum are truncated at the end. options: NULL for the defaults. Release with pinion_free(*out). */
PINION_API pinion_status pinion_embed(pinion_model* model, const char* const* texts, size_t count,
                                      const pinion_embed_options* options, float** out, size_t* width);

#ifdef __cplusplus
}
#endif

#endif

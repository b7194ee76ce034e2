/* Pinion in a program of your own: language models from Hugging Face folders on the CPU. C11 and C++.
 *
 *   pinion_model *model;
 *   if (pinion_model_open("DIR", NULL, &model) != PINION_OK) { puts(pinion_error_text()); ... }
 *
 * README.md beside this file has a whole program, and how to build it.
 *
 * Numbers. Token ids and logits are the bits that `pinion generate` and `pinion logits` give for the same folder and
 * mode, on every machine, for any number of threads, alone or in a batch.
 *
 * Errors. A function that can fail returns a pinion_status; pinion_error_text() then says in a line what was wrong,
 * where, what was wanted and what was there. Handles and results that were to be made are NULL then; what else the
 * arguments point to is as it was, unless a function's comment says otherwise. No C++ exception ever leaves the
 * library, and it neither exits, nor prints, nor touches signals. A file that is shortened while the model is open
 * raises SIGBUS, as in any program that maps files.
 *
 * Ownership. What a function hands out through `out` belongs to the caller, who gives it back to the function that its
 * comment names. What goes in is read during the call only and may be freed after it. Closing or freeing NULL does
 * nothing.
 *
 * Threads. A model is what several sessions share. Tokens, templates and what asks about a model may be called from any
 * thread at any time. Passes (opening, evaluating, generating, saving, loading) of one model wait for each other, as
 * they share its team of threads; a session is for one thread at a time, but for pinion_session_interrupt. The calling
 * thread is one of the team, pinned to a core during a pass and afterwards as it was before; each thread that runs
 * passes keeps the others of a team of its own, so let one thread do it. It wants a stack of the usual size, 8 MB. A
 * callback runs on the thread that made the call, but for pinion_model_options.on_message; it must not throw, jump out
 * or close what is in use, and passes of the same model fail in it with PINION_ERROR_BUSY. After fork() the child must
 * not use a model. pinion_chat_render runs the template in a short-lived child process of its own, so a handler of
 * SIGCHLD may hear of it.
 *
 * Structs for options begin with their size: what is not said is 0 and has its default, so that programs go on when a
 * later version adds a field at the end. `pinion_model_options options = {.size = sizeof options};`
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

/* The interface's own version: a program that was compiled for one runs with the library of the same. Additions keep
 * it. It is also the library's SONAME, libpinion.so.1. */
#define PINION_API_VERSION 1
PINION_API uint32_t pinion_api_version(void);

PINION_API const char* pinion_version(void); /* "0.1.0", of the package */
PINION_API const char* pinion_build(void);   /* what `pinion --version` prints: lines without a last newline */

typedef enum pinion_status {
  PINION_OK = 0,
  PINION_ERROR_ARGUMENT = 1, /* of the caller: null, out of range, ids outside the vocabulary, an unknown name */
  PINION_ERROR_MODEL = 2,    /* the folder, or what its files say */
  PINION_ERROR_CONTEXT = 3,  /* more tokens than the session, or the model, can hold */
  PINION_ERROR_MEMORY = 4,   /* too little, for what was asked or at all */
  PINION_ERROR_TEMPLATE = 5, /* there is none, it refuses the conversation, or it takes too much time or memory */
  PINION_ERROR_STATE = 6,    /* a saved state is damaged or not of this model */
  PINION_ERROR_BUSY = 7,     /* called from a callback of the same model, or while this thread opens one */
  PINION_ERROR_RUN = 8,      /* a pass failed: its logits are no numbers, or pinion_session_interrupt ended it */
  PINION_ERROR_INTERNAL = 9  /* a mistake of this library */
} pinion_status;

/* Of this thread's last failure, in UTF-8; "" before the first. Valid until the thread's next call that fails. */
PINION_API const char* pinion_error_text(void);

/* Gives back what a function below has allocated as plain memory: ids, texts and states. */
PINION_API void pinion_free(void* memory);

/* --- Models --- */

typedef struct pinion_model pinion_model;

typedef enum pinion_message {
  PINION_NOTE = 0,    /* good to know */
  PINION_WARNING = 1, /* wrong, and keeps nobody from going on: cached weights could not be written, say */
  PINION_DOUBT = 2 /* cached weights were damaged, found after they were in use: results since opening may be wrong */
} pinion_message;

/* Texts are those of the command line's options of the same names (`pinion generate --help`); NULL: the default. */
typedef struct pinion_model_options {
  size_t size;             /* sizeof(pinion_model_options) */
  const char* quant;       /* "none", "w8a8", "w4a8" */
  const char* head;        /* "none", "w8", "w4" */
  const char* kv;          /* "f32", "bf16", "q8" */
  const char* const* keep; /* [keep_count] matrices whose name holds one of these stay bf16 */
  size_t keep_count;
  int no_rotate;            /* not 0: inputs of quantised matrices stay as they are */
  const char* calibration;  /* the text itself, for w4a8 */
  int32_t threads;          /* 0: as `pinion tune` found, else one for each core that helps; at most 256 */
  const char* cores;        /* "0-3,8", "big" */
  const char* kernels;      /* as `pinion cpu` lists them */
  int64_t prefill_chunk;    /* prompt tokens in a pass, 1 to 65536; changes speed and memory, never the result */
  int no_cache;             /* not 0: weights are packed anew, and nothing is kept for the next start */
  const char* cache_folder; /* NULL: the one that the program `pinion` has */
  void* user;               /* for the callbacks */
  void (*on_progress)(void* user, int64_t done, int64_t total); /* while it loads: bytes, or a calibration's tokens */
  /* From any thread, also of the library's own, until the model and all its sessions are closed. NULL: nobody is told.
   * text: in UTF-8, valid during the call. */
  void (*on_message)(void* user, pinion_message kind, const char* text);
} pinion_model_options;

/* folder: of a model as Hugging Face lays it out, or its ORG/NAME in the Hugging Face cache. options: NULL is all
 * defaults. Takes as long as loading takes: seconds, or less where packed weights are cached. */
PINION_API pinion_status pinion_model_open(const char* folder, const pinion_model_options* options, pinion_model** out);

/* Sessions that are still open keep what they need. */
PINION_API void pinion_model_close(pinion_model* model);

/* Texts are valid as long as the model is open. */
typedef struct pinion_model_info {
  size_t size;         /* sizeof(pinion_model_info), set by the caller */
  const char* family;  /* "llama" */
  const char* quant;   /* "w8a8" */
  const char* kv;      /* "q8" */
  const char* kernels; /* "avx512_vnni" */
  int32_t threads;     /* of a pass of one token */
  int32_t has_tokenizer;
  int64_t vocab_size;     /* numbers in a row of logits */
  int64_t context_length; /* the most tokens that the model can hold */
  int64_t weight_bytes;   /* packed */
  int32_t from_cache;     /* whether the packed weights were there already */
} pinion_model_info;

PINION_API pinion_status pinion_model_describe(const pinion_model* model, pinion_model_info* out);

/* Ids that end a text, ascending: *out [*count]; pinion_free(*out). */
PINION_API pinion_status pinion_model_end_ids(const pinion_model* model, int32_t** out, size_t* count);

/* --- Texts and tokens: models without a tokenizer fail here with PINION_ERROR_MODEL --- */

/* text: [bytes], UTF-8; what is not UTF-8 counts as U+FFFD. add_special: not 0 adds BOS and EOS as the folder asks, as
 * prompts of `pinion generate` have them. Special tokens that the text spells are special tokens: for what people type
 * see pinion_chat_render. *out [*count]; pinion_free(*out). */
PINION_API pinion_status pinion_tokenize(const pinion_model* model, const char* text, size_t bytes, int add_special,
                                         int32_t** out, size_t* count);

/* keep_special: not 0 writes special tokens out. *out [*bytes], UTF-8 and a zero behind it; bytes may be NULL;
 * pinion_free(*out). Fails on ids outside the vocabulary. */
PINION_API pinion_status pinion_detokenize(const pinion_model* model, const int32_t* ids, size_t count,
                                           int keep_special, char** out, size_t* bytes);

/* What transformers' apply_chat_template takes; texts are JSON and end with a zero. */
typedef struct pinion_chat {
  size_t size;               /* sizeof(pinion_chat) */
  const char* messages;      /* [{"role": "user", "content": "Hello"}] */
  const char* tools;         /* a list of schemas; NULL: none */
  const char* variables;     /* {"enable_thinking": false}; NULL: none */
  const char* template_name; /* of a folder with several; NULL: tool_use where there are tools, else default */
  int no_generation_prompt;  /* not 0: ends behind the last message */
} pinion_chat;

/* The prompt that the folder's chat template makes of a conversation: its text, and its ids, in which special tokens
 * that messages spell are plain text. Each may be NULL; without ids no tokenizer is needed. A prompt with U+0000 has
 * ids alone. pinion_free(*text), pinion_free(*ids). */
PINION_API pinion_status pinion_chat_render(const pinion_model* model, const pinion_chat* chat, char** text,
                                            int32_t** ids, size_t* count);

/* --- Sessions: what a model remembers of one text --- */

typedef struct pinion_session pinion_session;

/* context: the most tokens that it can hold; 0: 8192. A model's context length is the limit in any case. Its cache is
 * taken at once, and PINION_ERROR_MEMORY says in figures where it does not fit. */
PINION_API pinion_status pinion_session_open(pinion_model* model, int64_t context, pinion_session** out);
PINION_API void pinion_session_close(pinion_session* session);

PINION_API int64_t pinion_session_context(const pinion_session* session);

/* The tokens that it holds: *out [*count]; pinion_free(*out). */
PINION_API pinion_status pinion_session_ids(const pinion_session* session, int32_t** out, size_t* count);

/* Appends ids [count] and writes logits: of the last of them, [vocab_size], or with `all` (not 0) of each, [count,
 * vocab_size]. room: how many numbers fit into logits, which may be NULL: none are wanted. Each row stands for the
 * token behind it. Fails where more tokens come than fit, and on ids outside the vocabulary: the session is as it was
 * then. After PINION_ERROR_RUN it holds what was evaluated until an interruption, else nothing, and logits may hold
 * anything. */
PINION_API pinion_status pinion_session_evaluate(pinion_session* session, const int32_t* ids, size_t count, int all,
                                                 float* logits, size_t room);

/* Drops the tokens behind the first `tokens`. A model with recurrent layers cannot go back to any place: *left, which
 * may be NULL, says how many tokens it holds then, at most as many as asked for; give it the others again. */
PINION_API pinion_status pinion_session_rewind(pinion_session* session, int64_t tokens, int64_t* left);

/* From any thread: of a prompt, the pass that runs now is the last one, and the call fails with PINION_ERROR_RUN; a
 * text ends with the next token (PINION_FINISH_STOP). Has no effect on calls that begin later. */
PINION_API void pinion_session_interrupt(pinion_session* session);

/* The session as bytes, to go on with in another process or on another machine: *out [*bytes]; pinion_free(*out). Of a
 * session that holds at least one token. */
PINION_API pinion_status pinion_session_save(pinion_session* session, void** out, size_t* bytes);

/* Replaces what the session holds. Damage and states of other models or modes are noticed: the session is empty then.
 */
PINION_API pinion_status pinion_session_load(pinion_session* session, const void* state, size_t bytes);

/* --- Texts from a model --- */

/* One of the samplers' settings by its name: temperature (0: greedy), top_k, top_p, min_p, repetition_penalty,
 * presence_penalty, frequency_penalty, dry_multiplier, dry_base, dry_allowed_length. */
typedef struct pinion_setting {
  const char* name;
  double value;
} pinion_setting;

/* Sees a token as it comes, or, where end-of-text gives out what was held back, id -1 once. text: [bytes], what the
 * token adds, whole characters; often empty, as it may be part of a character or of a stop text. Valid during the call.
 * Not 0 ends the text. */
typedef int (*pinion_on_token)(void* user, int32_t id, const char* text, size_t bytes);

typedef struct pinion_generate_options {
  size_t size;                    /* sizeof(pinion_generate_options) */
  int64_t max_tokens;             /* 0: 256; -1: none, the prompt is evaluated */
  const pinion_setting* settings; /* [setting_count]; those not named are what generation_config.json says */
  size_t setting_count;
  const uint64_t* seed;     /* NULL: by chance, and the result says which */
  const char* const* stops; /* [stop_count] texts before which the text ends; they need a tokenizer */
  size_t stop_count;
  const char* const* dry_breakers; /* [dry_breaker_count] that no repetition of DRY goes across; 0: its author's */
  size_t dry_breaker_count;
  int ignore_end;           /* not 0: goes on after the model has ended its text */
  void* user;               /* for on_token */
  pinion_on_token on_token; /* NULL: nobody is told */
} pinion_generate_options;

typedef enum pinion_finish {
  PINION_FINISH_STOP = 0,   /* the model ended it, or a stop text, the callback, an interruption */
  PINION_FINISH_LENGTH = 1, /* max_tokens */
  PINION_FINISH_CONTEXT = 2 /* the session is full */
} pinion_finish;

typedef struct pinion_result {
  pinion_status status; /* PINION_OK, but for a text of a batch that failed alone */
  const char* error;    /* that text's; else "" */
  pinion_finish finish;
  size_t id_count;
  const int32_t* ids; /* [id_count] that were generated, without one that ends a text */
  size_t text_bytes;
  const char* text;      /* [text_bytes], UTF-8 and a zero behind it, up to a stop text: what the ids add to the
                            prompt's text, with the blank that begins it; NULL without a tokenizer */
  int64_t reused_tokens; /* of the prompt: held already */
  int64_t prefilled_tokens;
  double prefill_seconds; /* until the first token's logits; 0 in a batch */
  double decode_seconds;
  uint64_t seed;
  uint64_t logits_hash; /* of all logits that tokens were drawn from: what `pinion generate --json` says */
} pinion_result;

PINION_API void pinion_result_free(pinion_result* result);

/* Continues prompt [count], the whole text: what the session holds of it already is not evaluated again, the rest is
 * dropped. options: NULL is all defaults. */
PINION_API pinion_status pinion_generate(pinion_session* session, const int32_t* prompt, size_t count,
                                         const pinion_generate_options* options, pinion_result** out);

typedef struct pinion_request {
  const int32_t* prompt; /* [count] */
  size_t count;
  const pinion_generate_options* options; /* NULL is all defaults */
} pinion_request;

/* Many texts at once, each the one that it is alone, but without a session: requests [count], results [count], which
 * the caller provides and whose elements go to pinion_result_free. parallel: how many run at once; 0: 8. Callbacks of
 * different texts come in turns. Requests that cannot be run at all fail together, before any text has begun. */
PINION_API pinion_status pinion_generate_batch(pinion_model* model, const pinion_request* requests, size_t count,
                                               int64_t parallel, pinion_result** results);

#ifdef __cplusplus
}
#endif

#endif

// What the handles of the C interface stand for.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "apps/library/error.h"
#include "apps/library/pinion.h"
#include "apps/library/turn.h"
#include "apps/model/run_options.h"
#include "engine/runtime/runtime.h"
#include "engine/session/session.h"
#include "tokenizer/templates/chat_template.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

inline pinion_status busy() {
  return failed(PINION_ERROR_BUSY, "a callback called what needs the model that is running");
}

struct OpenModel {
  Turns turns;
  RunOptions run;
  std::string family, quant, kv;               // for pinion_model_describe
  std::shared_ptr<const Tokenizer> tokenizer;  // null: the folder has none
  Runtime runtime;

  std::mutex template_mutex;  // of the next two
  bool is_template_read = false;
  std::shared_ptr<const ChatTemplate> chat_template;
};

// PINION_ERROR_MEMORY where that is what was missing, by what the engine says of it, else `other`.
inline pinion_status status_of(const Error& e, pinion_status other) {
  const bool lacks_memory = e.what.starts_with("too little memory") || e.what.starts_with("no memory");
  return failed(lacks_memory ? PINION_ERROR_MEMORY : other, e);
}

}  // namespace pinion

struct pinion_model {
  std::shared_ptr<pinion::OpenModel> shared;
};

struct pinion_session {
  std::shared_ptr<pinion::OpenModel> model;  // outlives the session
  std::unique_ptr<pinion::Session> session;
  std::atomic<bool> interrupted{false};
};

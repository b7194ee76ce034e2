// Where a user's files of this program belong, by the XDG Base Directory Specification, and where the tools of Hugging
// Face keep what they download.
#pragma once

#include <string>

namespace pinion {

// What can be made again: $XDG_CACHE_HOME/pinion, else .cache/pinion in a $HOME that exists, else empty: nothing is
// kept.
std::string default_cache_folder();

// What was decided: $XDG_CONFIG_HOME/pinion, else .config/pinion in a $HOME that exists, else empty.
std::string default_config_folder();

// What was done: $XDG_STATE_HOME/pinion, else .local/state/pinion in a $HOME that exists, else empty.
std::string default_state_folder();

// $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, else huggingface/hub in the user's caches, else empty.
std::string hugging_face_cache_folder();

}  // namespace pinion

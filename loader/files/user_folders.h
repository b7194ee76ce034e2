// The program's folders in a user's home, by the XDG Base Directory Specification, and the cache of Hugging Face's
// tools.
#pragma once

#include <string>

namespace pinion {

// Each is $VARIABLE/pinion if the variable holds an absolute path, else the folder below $HOME if $HOME is a folder,
// else empty: nothing is stored then.
std::string default_cache_folder();   // $XDG_CACHE_HOME, ~/.cache/pinion: data that can be rebuilt
std::string default_config_folder();  // $XDG_CONFIG_HOME, ~/.config/pinion: settings
std::string default_state_folder();   // $XDG_STATE_HOME, ~/.local/state/pinion: history

// $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, else huggingface/hub in the user's cache folder, else empty.
std::string hugging_face_cache_folder();

}  // namespace pinion

// A file that appears complete or not at all: written aside, then renamed. Devices, pipes and open descriptors are
// written as they are.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Without finish() nothing is left behind.
class OutputFile {
 public:
  ~OutputFile();
  // A link is followed and stays; a file that is there keeps its mode.
  Error open(const std::string& path);
  Error write(const void* data, size_t bytes);
  Error finish();

  bool is_ordinary() const { return !partial_path_.empty(); }  // no device, pipe or descriptor: it has a place

 private:
  Error failure() const;
  Error replace();

  std::string path_;          // as it was given
  std::string target_;        // where its links lead
  std::string partial_path_;  // beside the target; empty: written in place
  std::unique_ptr<std::FILE, CloseFile> file_;
};

// A whole file of this text.
Error write_output_file(const std::string& path, std::string_view text);

}  // namespace pinion

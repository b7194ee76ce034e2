// A file that appears complete or not at all: written aside, then renamed. Devices and pipes are written as they are.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>

#include "kernels/error.h"

namespace pinion {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Without finish() nothing is left behind.
class OutputFile {
 public:
  ~OutputFile();
  Error open(const std::string& path);
  Error write(const void* data, size_t bytes);
  Error finish();

 private:
  std::string path_;
  std::string partial_path_;  // empty: written in place
  std::unique_ptr<std::FILE, CloseFile> file_;
};

}  // namespace pinion

// A file that appears complete or not at all: written, then renamed. Devices, pipes and descriptors: written directly.
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Leaves nothing behind unless finish() succeeds.
class OutputFile {
 public:
  ~OutputFile();
  // Follows links, which stay links. An existing file keeps its mode.
  Error open(const std::string& path);
  Error write(const void* data, size_t bytes);
  Error finish();
  Error finish(std::string_view text);  // writes it first

  bool is_ordinary() const { return !partial_path_.empty(); }  // not a device, pipe or descriptor

 private:
  Error failure() const;
  Error replace();

  std::string path_;          // as given by the user
  std::string target_;        // the file behind its links
  std::string partial_path_;  // next to the target; empty: written directly
  std::unique_ptr<std::FILE, CloseFile> file_;
};

// Begins a NumPy file of float32 [rows, columns].
Error write_npy_header(OutputFile& file, int64_t rows, int64_t columns);

Error write_output_file(const std::string& path, std::string_view text);

// Makes a folder and its parents unless they exist.
Error make_folder(const std::filesystem::path& path);

}  // namespace pinion

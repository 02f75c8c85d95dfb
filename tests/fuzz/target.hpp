#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

// Shared code of the fuzz targets. Each target is one file with the function that libFuzzer calls; tests/fuzz.sh links
// it with libFuzzer, the tests with replay_main.cpp. Bad input should throw the program's own errors. Anything else (a
// crash, another exception, a broken promise) ends the process.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace trireme::fuzz {

/// Ends the process unless `kept`.
inline void require(bool kept, const char* promise) {
  if (kept) return;
  std::fprintf(stderr, "broken: %s\n", promise);
  std::abort();
}

/// Returns the path of a file of this process, in memory if /dev/shm exists.
inline std::string scratch_path(const std::string& name) {
  const std::string folder = std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp";
  static const std::string process = folder + "/trireme-fuzz-" + std::to_string(getpid()) + "-";
  return process + name;
}

/// A file of these bytes, removed with the object.
class InputFile {
 public:
  InputFile(const std::string& name, std::string_view bytes) : path_(scratch_path(name)) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~InputFile() { std::remove(path_.c_str()); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Reads every tensor of a checkpoint completely.
template <class Source>
void read_all(Source& source) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < source.tensors().size(); ++i) {
    const auto& tensor = source.tensors()[i];
    bytes.resize(static_cast<std::size_t>(tensor.shape.numel()) * size_of(tensor.dtype));
    source.read(i, 0, bytes);
  }
}

/// Returns the text before the first `separator` of `rest`, and reduces `rest` to the text after it.
inline std::string_view take_until(std::string_view& rest, std::string_view separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view field = rest.substr(0, end);
  rest = end == rest.npos ? std::string_view() : rest.substr(end + separator.size());
  return field;
}

}  // namespace trireme::fuzz

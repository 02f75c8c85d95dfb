#include "src/app/options/text_files.hpp"

#include <algorithm>
#include <span>

#include "io/posix/durable_file.hpp"
#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"
#include "src/base/error.hpp"

namespace trireme::app {

std::string read_text_file(const std::string& option, const std::string& path, std::int64_t max_bytes) {
  try {
    std::string text = io::read_whole_file(path, max_bytes, io::Symlinks::follow);
    constexpr std::string_view mark = "\xEF\xBB\xBF";
    if (text.starts_with(mark)) text.erase(0, mark.size());
    return text;
  } catch (const IoError& error) {
    throw IoError("--{}: {}", option, error.what());
  }
}

void check_outputs(const std::vector<std::string>& outputs, const std::vector<std::string>& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].empty()) continue;
    const auto is_same = [&](const std::string& other) {
      return !other.empty() && io::full_path(other) == io::full_path(outputs[i]);
    };
    TRIREME_CHECK(std::ranges::none_of(inputs, is_same), ConfigError,
                  "{} is both input and output: name another output", outputs[i]);
    TRIREME_CHECK(std::none_of(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i), is_same), ConfigError,
                  "{} would be written twice: name a file for each output", outputs[i]);
  }
}

void write_text_file(const std::string& option, const std::string& path, const std::string& text) {
  try {
    io::TemporaryFile file(path);
    io::FileOutput output(file.path());
    output.write_bytes(std::as_bytes(std::span(text)));
    output.close();
    file.commit();
  } catch (const IoError& error) {
    throw IoError("--{} {}: cannot be written: {}", option, path, error.what());
  }
}

}  // namespace trireme::app

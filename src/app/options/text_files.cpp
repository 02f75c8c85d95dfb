#include "src/app/options/text_files.hpp"

#include <set>
#include <span>

#include "io/checkpoint/checkpoint_reader.hpp"
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
  std::set<std::string> read, written;  // full paths
  for (const std::string& input : inputs) {
    if (!input.empty()) read.insert(io::full_path(input));
  }
  for (const std::string& output : outputs) {
    if (output.empty()) continue;
    const std::string path = io::full_path(output);
    TRIREME_CHECK(!read.contains(path), ConfigError, "{} is both input and output: name another output", output);
    TRIREME_CHECK(written.insert(path).second, ConfigError, "{} would be written twice: name a file for each output",
                  output);
    TRIREME_CHECK(!io::belongs_to_step(path), ConfigError, "{} belongs to a checkpoint: name another output", output);
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

#include "src/app/options/named_inputs.hpp"

#include <fcntl.h>
#include <glob.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "io/posix/folder.hpp"
#include "src/base/check.hpp"

namespace trireme::app {
namespace {

std::vector<std::string> files_of_folder(const std::string& folder) {
  std::vector<std::string> files;
  for (const std::string& name : io::names_in(folder)) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    std::error_code ignored;  // links may form a circle
    if (!name.starts_with('.') && std::filesystem::is_regular_file(path, ignored)) files.push_back(path);
  }
  TRIREME_CHECK(!files.empty(), DataError, "the folder {} has no files. Name one that has, or a pattern such as '{}'",
                folder, (std::filesystem::path(folder) / "*" / "*.jsonl").string());
  return files;
}

std::vector<std::string> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  const std::unique_ptr<glob_t, void (*)(glob_t*)> owner(&found, globfree);
  const int result = glob(pattern.c_str(), 0, nullptr, &found);
  TRIREME_CHECK(result == 0, DataError, "{} {}", pattern,
                result == GLOB_NOMATCH ? "matches no file" : "cannot be searched for files");
  return {found.gl_pathv, found.gl_pathv + found.gl_pathc};
}

/// Copies standard input into `path`, the file `name`. The parts of a corpus are read apart, by several threads.
void copy_standard_input(const std::string& path, const std::string& name) {
  std::ofstream copy(path, std::ios::binary);
  std::array<char, 1 << 16> block{};
  for (std::size_t got = block.size(); got == block.size();) {
    got = std::fread(block.data(), 1, block.size(), stdin);
    copy.write(block.data(), static_cast<std::streamsize>(got));
  }
  TRIREME_CHECK(std::ferror(stdin) == 0, IoError, "cannot read standard input: {}", std::strerror(errno));
  TRIREME_CHECK(copy.flush().good(), IoError, "cannot write {}: {}. TMPDIR names a folder with more room", name,
                std::strerror(errno));
}

}  // namespace

// Delegates, so that the copy is removed where this throws.
NamedInputs::NamedInputs(std::vector<std::string>& paths, int ranks) : NamedInputs() {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    std::vector<std::string> named{path};
    if (path == "-") {
      TRIREME_CHECK(ranks == 1 && copy_ < 0, ConfigError,
                    "standard input (-) can be read once, by one rank. Write it to a file first");
      std::string name = (std::filesystem::temp_directory_path() / "trireme-input-XXXXXX").string();
      copy_ = mkostemp(name.data(), O_CLOEXEC);
      TRIREME_CHECK(copy_ >= 0, IoError, "cannot create {}: {}", name, std::strerror(errno));
      unlink(name.c_str());  // so nothing is left of a command that is killed
      named = {fmt::format("/proc/self/fd/{}", copy_)};
      copy_standard_input(named.front(), name);
    } else if (std::filesystem::is_directory(path, ignored)) {
      named = files_of_folder(path);
    } else if (path.find_first_of("*?[") != path.npos && !std::filesystem::exists(path, ignored)) {
      named = files_of_pattern(path);
    }
    files.insert(files.end(), named.begin(), named.end());
  }
  paths = std::move(files);
}

NamedInputs::~NamedInputs() {
  if (copy_ >= 0) close(copy_);
}

}  // namespace trireme::app

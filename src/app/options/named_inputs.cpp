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
    std::error_code error;
    const std::filesystem::file_type type = std::filesystem::status(path, error).type();
    // A link to a file that is not there, as on a disk that is not mounted, or not allowed, is for the reader to
    // refuse. Links that form a circle are no files.
    const bool is_lost = type == std::filesystem::file_type::not_found || error == std::errc::permission_denied;
    if (!name.starts_with('.') && (type == std::filesystem::file_type::regular || is_lost)) files.push_back(path);
  }
  TRIREME_CHECK(!files.empty(), DataError, "the folder {} has no files. Name one that has, or a pattern such as '{}'",
                folder, (std::filesystem::path(folder) / "*" / "*.jsonl").string());
  return files;
}

std::vector<std::string> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  const std::unique_ptr<glob_t, void (*)(glob_t*)> owner(&found, globfree);
  const int result = glob(pattern.c_str(), 0, nullptr, &found);
  TRIREME_CHECK(result == 0 || result == GLOB_NOMATCH, DataError, "{} cannot be searched for files", pattern);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  std::error_code ignored;
  std::erase_if(files, [&](const std::string& path) { return std::filesystem::is_directory(path, ignored); });
  TRIREME_CHECK(!files.empty(), DataError, "{} matches no file", pattern);
  return files;
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
      copy_standard_input(fmt::format("/proc/self/fd/{}", copy_), name);
      TRIREME_CHECK(dup2(copy_, STDIN_FILENO) >= 0, IoError, "cannot read the copy of standard input again: {}",
                    std::strerror(errno));
      named = {"/dev/stdin"};  // the copy, by a name that messages can show
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

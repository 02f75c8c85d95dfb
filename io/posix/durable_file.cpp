#include "io/posix/durable_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>

#include "io/posix/file.hpp"
#include "io/posix/folder.hpp"
#include "src/base/check.hpp"

namespace trireme::io {

void sync_to_disk(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  TRIREME_CHECK(file && fsync(file.get()) == 0, IoError, "cannot bring {} to the disk: {}", path, std::strerror(errno));
}

void check_replaceable(const std::string& path) {
  std::error_code failed;
  const std::filesystem::file_type type = std::filesystem::status(path, failed).type();
  TRIREME_CHECK(type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found ||
                    type == std::filesystem::file_type::none,
                ConfigError, "{} is there and is not a file, so it is not replaced: name another output", path);
}

void rename_durably(const std::string& from, const std::string& to) {
  TRIREME_CHECK(std::rename(from.c_str(), to.c_str()) == 0, IoError, "cannot rename {} to {}: {}", from, to,
                std::strerror(errno));
  const std::filesystem::path directory = std::filesystem::path(to).parent_path();
  sync_to_disk(directory.empty() ? "." : directory.string());
}

TemporaryFile::TemporaryFile(std::string target) : target_(std::move(target)) {
  check_replaceable(target_);
  for (int attempt = 0;; ++attempt) {
    path_ = target_ + ".partial-" + unique_suffix();
    const Descriptor file(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file) return;
    TRIREME_CHECK(errno == EEXIST && attempt < 100, IoError, "cannot write {}: {}", target_, std::strerror(errno));
  }
}

TemporaryFile::~TemporaryFile() {
  if (!committed_) unlink(path_.c_str());
}

void TemporaryFile::commit() {
  sync_to_disk(path_);
  rename_durably(path_, target_);
  committed_ = true;
}

void replace_together(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<std::unique_ptr<TemporaryFile>> written;
  for (const auto& [path, text] : files) {
    written.push_back(std::make_unique<TemporaryFile>(path));
    FileOutput output(written.back()->path());
    output.write_bytes(std::as_bytes(std::span(text)));
    output.close();
  }
  if (files.size() > 1) {
    std::error_code failed;
    std::filesystem::remove(files.back().first, failed);
    TRIREME_CHECK(!failed, IoError, "cannot delete {}: {}", files.back().first, failed.message());
  }
  for (const auto& file : written) file->commit();
}

}  // namespace trireme::io

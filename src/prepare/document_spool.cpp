#include "src/prepare/document_spool.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/posix/file_access.hpp"
#include "src/base/check.hpp"
#include "src/comm/all_to_all.hpp"

namespace trireme::io {
namespace {
constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
}

DocumentSpool::DocumentSpool(Communicator& comm, std::string folder, std::string name)
    : comm_(comm), folder_(std::move(folder)), name_(std::move(name)) {
  collectively(comm, [&] {
    const std::string path = path_of(comm.rank());
    file_ = Descriptor(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    TRIREME_CHECK(file_, IoError, "cannot write {}: {}", path, std::strerror(errno));
  });
}

std::string DocumentSpool::path_of(int rank) const { return fmt::format("{}/{}-{}", folder_, name_, rank); }

void DocumentSpool::append(std::string_view record) {
  buffer_ += record;
  offsets_.push_back(offsets_.back() + static_cast<std::int64_t>(record.size()));
  if (buffer_.size() >= buffer_bytes) flush();
}

void DocumentSpool::flush() {
  write_at(file_.get(), path_of(comm_.rank()), buffer_.data(), buffer_.size(), written_bytes_);
  written_bytes_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void DocumentSpool::finish() {
  collectively(comm_, [&] {
    flush();
    write_at(file_.get(), path_of(comm_.rank()), reinterpret_cast<const char*>(offsets_.data()),
             offsets_.size() * sizeof(std::int64_t), written_bytes_);
  });
  sizes_bytes_ = all_gather_number(comm_, written_bytes_);
  firsts_ = {0};
  for (const std::int64_t count : all_gather_number(comm_, static_cast<std::int64_t>(offsets_.size()) - 1)) {
    firsts_.push_back(firsts_.back() + count);
  }
  files_.resize(static_cast<std::size_t>(comm_.size()));
}

int DocumentSpool::descriptor_of(int rank) const {
  if (rank == comm_.rank()) return file_.get();
  const std::scoped_lock lock(mutex_);
  Descriptor& file = files_[static_cast<std::size_t>(rank)];
  if (!file) {
    file = Descriptor(open(path_of(rank).c_str(), O_RDONLY | O_CLOEXEC));
    TRIREME_CHECK(file, IoError, "cannot open {}: {}", path_of(rank), std::strerror(errno));
  }
  return file.get();
}

std::string DocumentSpool::read(std::int64_t document) const {
  const auto rank = static_cast<int>(std::ranges::upper_bound(firsts_, document) - firsts_.begin()) - 1;
  const std::int64_t local = document - firsts_[static_cast<std::size_t>(rank)];
  const int descriptor = descriptor_of(rank);
  std::array<std::int64_t, 2> range{};
  if (rank == comm_.rank()) {
    range = {offsets_[static_cast<std::size_t>(local)], offsets_[static_cast<std::size_t>(local) + 1]};
  } else {
    const std::int64_t at = sizes_bytes_[static_cast<std::size_t>(rank)] + local * std::int64_t{sizeof(std::int64_t)};
    read_at(descriptor, path_of(rank), reinterpret_cast<char*>(range.data()), sizeof range, at);
  }
  std::string record(static_cast<std::size_t>(range[1] - range[0]), '\0');
  read_at(descriptor, path_of(rank), record.data(), record.size(), range[0]);
  return record;
}

}  // namespace trireme::io

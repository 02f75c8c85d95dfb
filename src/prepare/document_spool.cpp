#include "src/prepare/document_spool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/comm/all_to_all.hpp"

namespace trireme::prepare {
namespace {
constexpr std::size_t buffer_bytes = std::size_t{1} << 20;

std::span<char> bytes_of(std::span<std::int64_t> numbers) {
  return {reinterpret_cast<char*>(numbers.data()), numbers.size_bytes()};
}

}  // namespace

DocumentSpool::DocumentSpool(const Files& files, Communicator& comm, std::string folder, std::string name)
    : work_(files.work), comm_(comm), folder_(std::move(folder)), name_(std::move(name)) {
  collectively(comm, [&] { file_ = work_->open(path_of(comm.rank()), Access::create); });
}

std::string DocumentSpool::path_of(int rank) const { return fmt::format("{}/{}-{}", folder_, name_, rank); }

void DocumentSpool::append(std::string_view record) {
  buffer_ += record;
  offsets_.push_back(offsets_.back() + static_cast<std::int64_t>(record.size()));
  if (buffer_.size() >= buffer_bytes) flush();
}

void DocumentSpool::flush() {
  file_->write(written_bytes_, buffer_);
  written_bytes_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void DocumentSpool::finish() {
  collectively(comm_, [&] {
    flush();
    const std::span<char> bytes = bytes_of(offsets_);
    file_->write(written_bytes_, {bytes.data(), bytes.size()});
  });
  sizes_bytes_ = all_gather_number(comm_, written_bytes_);
  firsts_ = {0};
  for (const std::int64_t count : all_gather_number(comm_, static_cast<std::int64_t>(offsets_.size()) - 1)) {
    firsts_.push_back(firsts_.back() + count);
  }
  others_.resize(static_cast<std::size_t>(comm_.size()));
}

const RandomAccessFile& DocumentSpool::file_of(int rank) const {
  if (rank == comm_.rank()) return *file_;
  const std::scoped_lock lock(mutex_);
  std::unique_ptr<RandomAccessFile>& file = others_[static_cast<std::size_t>(rank)];
  if (!file) file = work_->open(path_of(rank), Access::read);
  return *file;
}

std::string DocumentSpool::read(std::int64_t document) const {
  const auto rank = static_cast<int>(std::ranges::upper_bound(firsts_, document) - firsts_.begin()) - 1;
  const std::int64_t local = document - firsts_[static_cast<std::size_t>(rank)];
  const RandomAccessFile& file = file_of(rank);
  std::array<std::int64_t, 2> range{};
  if (rank == comm_.rank()) {
    range = {offsets_[static_cast<std::size_t>(local)], offsets_[static_cast<std::size_t>(local) + 1]};
  } else {
    const std::int64_t at = sizes_bytes_[static_cast<std::size_t>(rank)] + local * std::int64_t{sizeof(std::int64_t)};
    file.read(at, bytes_of(range));
  }
  std::string record(static_cast<std::size_t>(range[1] - range[0]), '\0');
  file.read(range[0], record);
  return record;
}

}  // namespace trireme::prepare

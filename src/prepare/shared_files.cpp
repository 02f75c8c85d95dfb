#include "src/prepare/shared_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "src/comm/host_collectives.hpp"

namespace trireme::prepare {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20;  // written, or compressed, at a time

std::span<char> bytes_of(std::span<std::int64_t> numbers) {
  return {reinterpret_cast<char*>(numbers.data()), numbers.size_bytes()};
}

std::int64_t sum_before(Communicator& comm, std::int64_t number) {
  const std::vector<std::int64_t> numbers = all_gather_number(comm, number);
  return std::accumulate(numbers.begin(), numbers.begin() + comm.rank(), std::int64_t{0});
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
  if (buffer_.size() >= block_bytes) flush();
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

OrderedOutput::OrderedOutput(const Files& files, Communicator& comm, ThreadPool& pool, const std::string& target)
    : work_(files.work),
      comm_(comm),
      pool_(pool),
      target_(target),
      compression_(compression_by_name(target)),
      folder_path_(target + ".partial"),
      path_(folder_path_ + "/whole") {
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    folder_ = work_->lock_folder(folder_path_, target, {});
    file_ = work_->open(path_, Access::create);
    begin_ = 0;
  });
  collectively(comm, [&] {
    if (comm.rank() != 0) file_ = work_->open(path_, Access::write);
  });
}

void OrderedOutput::expect(std::int64_t size_bytes) { begin_ = sum_before(comm_, size_bytes); }

void OrderedOutput::append(std::string_view bytes) {
  buffer_ += bytes;
  const auto blocks = static_cast<std::size_t>(is_compressed() ? pool_.threads() : 1);
  if (buffer_.size() >= blocks * block_bytes) flush();
}

void OrderedOutput::flush() {
  if (is_compressed()) {
    std::vector<std::string> blocks((buffer_.size() + block_bytes - 1) / block_bytes);
    pool_.parallel_for(std::ssize(blocks), [&](std::int64_t i) {
      const auto block = static_cast<std::size_t>(i);
      const auto bytes = std::string_view(buffer_).substr(block * block_bytes, block_bytes);
      blocks[block] = work_->compressed(bytes, compression_);
    });
    buffer_.clear();
    for (const std::string& block : blocks) buffer_ += block;
  }
  if (begin_) {
    file_->write(*begin_ + written_bytes_, buffer_);
  } else {
    if (!spool_) spool_ = work_->open(fmt::format("{}/spool-{}", folder_path_, comm_.rank()), Access::create_unnamed);
    spool_->write(written_bytes_, buffer_);
  }
  written_bytes_ += static_cast<std::int64_t>(buffer_.size());
  buffer_.clear();
}

void OrderedOutput::commit() {
  collectively(comm_, [&] { flush(); });
  const std::int64_t begin = sum_before(comm_, written_bytes_);
  collectively(comm_, [&] {
    std::string bytes;
    for (std::int64_t done = 0; spool_ && done < written_bytes_; done += std::ssize(bytes)) {
      bytes.resize(std::min(static_cast<std::size_t>(written_bytes_ - done), block_bytes));
      spool_->read(done, bytes);
      file_->write(begin + done, bytes);
    }
    if (is_compressed() && comm_.rank() == comm_.size() - 1 && begin + written_bytes_ == 0) {
      file_->write(0, work_->compressed("", compression_));  // an empty file is not compressed
    }
    file_->sync();
  });
  collectively(comm_, [&] {
    if (folder_) work_->commit(path_, target_);
  });
}

}  // namespace trireme::prepare

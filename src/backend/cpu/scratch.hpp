#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace trireme::cpu {

/// Memory aligned to 64 bytes. Requests huge pages where it fills most of one: matrices in tiles miss the TLB less.
class ScratchPiece {
 public:
  static constexpr std::size_t line = 64, huge_page = std::size_t{2} << 20;

  ScratchPiece() = default;
  explicit ScratchPiece(std::size_t size) {
    const bool is_large = size > huge_page / 2;
    size_bytes_ = is_large ? (size + huge_page - 1) / huge_page * huge_page : size;
    const std::align_val_t alignment{is_large ? huge_page : line};
    data_ = {static_cast<std::byte*>(::operator new(size_bytes_, alignment)), Free{alignment}};
    if (is_large) madvise(data_.get(), size_bytes_, MADV_HUGEPAGE);  // without them it is slower
  }
  std::byte* data() const { return data_.get(); }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  struct Free {
    std::align_val_t alignment;
    void operator()(std::byte* data) const { ::operator delete(data, alignment); }
  };
  std::unique_ptr<std::byte, Free> data_{nullptr, Free{}};
  std::size_t size_bytes_ = 0;
};

/// Workspace for thread pool tasks, kept between calls: one piece per concurrent task.
class ScratchPool {
 public:
  /// A piece that belongs to one task until the end of its scope. Initially undefined.
  class Lease {
   public:
    Lease(ScratchPool& pool, std::size_t size_bytes) : pool_(pool) {
      {
        const std::lock_guard lock(pool.mutex_);
        if (!pool.pieces_.empty()) {
          piece_ = std::move(pool.pieces_.back());
          pool.pieces_.pop_back();
        }
      }
      if (piece_.size_bytes() < size_bytes) piece_ = ScratchPiece(size_bytes);
      next_ = piece_.data();
    }
    ~Lease() {
      const std::lock_guard lock(pool_.mutex_);
      pool_.pieces_.push_back(std::move(piece_));
    }
    Lease& operator=(Lease&&) = delete;

    /// The next n elements of the piece, aligned to 64 bytes.
    template <class A>
    A* take(std::int64_t n) {
      A* elements = reinterpret_cast<A*>(next_);
      constexpr std::size_t line = ScratchPiece::line;
      next_ += (static_cast<std::size_t>(n) * sizeof(A) + line - 1) / line * line;
      return elements;
    }

   private:
    ScratchPool& pool_;
    ScratchPiece piece_;
    std::byte* next_ = nullptr;
  };

 private:
  std::mutex mutex_;
  std::vector<ScratchPiece> pieces_;
};

}  // namespace trireme::cpu

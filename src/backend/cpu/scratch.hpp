#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace trireme::cpu {

/// Workspace for thread pool tasks, kept between calls: one piece per concurrent task.
class ScratchPool {
  struct Free {
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{64}); }
  };
  struct Piece {
    std::unique_ptr<std::byte, Free> data;
    std::size_t size_bytes = 0;
  };

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
      if (piece_.size_bytes < size_bytes) {
        piece_.data.reset(static_cast<std::byte*>(::operator new (size_bytes, std::align_val_t{64})));
        piece_.size_bytes = size_bytes;
      }
      next_ = piece_.data.get();
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
      next_ += (static_cast<std::size_t>(n) * sizeof(A) + 63) / 64 * 64;
      return elements;
    }

   private:
    ScratchPool& pool_;
    Piece piece_;
    std::byte* next_ = nullptr;
  };

 private:
  std::mutex mutex_;
  std::vector<Piece> pieces_;
};

}  // namespace trireme::cpu

#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

namespace trireme {

/// Fixed array of zero bytes from the system, in huge pages if it grants them: random accesses then miss the TLB less.
/// Takes memory only where it is written. `T` is valid as zero bytes.
template <class T>
class ZeroPages {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit ZeroPages(std::size_t size) : size_(size) {
    room_ = mmap(nullptr, room_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room_ == MAP_FAILED) throw std::bad_alloc();
    const auto address = reinterpret_cast<std::uintptr_t>(room_);
    data_ = reinterpret_cast<T*>((address + huge_page - 1) / huge_page * huge_page);
    // If the system declines, accesses are slower.
    madvise(data_, size_bytes(), MADV_HUGEPAGE);
  }
  ~ZeroPages() { munmap(room_, room_bytes()); }
  ZeroPages& operator=(ZeroPages&&) = delete;

  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;
  std::size_t size_bytes() const { return size_ * sizeof(T); }
  std::size_t room_bytes() const { return size_bytes() + huge_page; }

  std::size_t size_;
  void* room_;
  T* data_;
};

}  // namespace trireme

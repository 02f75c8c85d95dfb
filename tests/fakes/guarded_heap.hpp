#pragma once

#include <cstddef>
#include <map>

namespace fake_cuda {

/// Memory that is protected unless an Access exists.
class GuardedHeap {
 public:
  GuardedHeap();
  ~GuardedHeap();
  GuardedHeap(const GuardedHeap&) = delete;
  GuardedHeap& operator=(const GuardedHeap&) = delete;

  /// Aligned to 256 bytes.
  void* allocate(std::size_t size_bytes);
  void free(void* pointer);
  bool contains(const void* pointer) const;

  class Access {
   public:
    explicit Access(GuardedHeap* heap);
    ~Access();
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    GuardedHeap* heap_;
  };

 private:
  void protect(bool may_be_touched);

  std::byte* base_;
  std::size_t top_ = 0;                           // bytes after it were never allocated
  std::map<std::size_t, std::size_t> sizes_;      // sizes of blocks in use, by offset
  std::multimap<std::size_t, std::size_t> free_;  // offsets of free blocks, by size
  int accesses_ = 0;
};

}  // namespace fake_cuda

#pragma once

#include <cstddef>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

// Stacks of fibers, and the hooks by which sanitizers follow them.

namespace trireme::gpu::host {

// ThreadSanitizer takes each fiber for a thread, and a switch for no order between two. These functions tell it the
// order. The files that define and call them are compiled without it.
#if defined(TRIREME_SANITIZE_THREAD)
void released(void* point);
void acquired(void* point);
/// Tells it that the running thread writes 16 bytes, and reads 16 unless `from` is null.
void accessed(const void* from, void* to);
#else
inline void released(void*) {}
inline void acquired(void*) {}
inline void accessed(const void*, void*) {}
#endif

constexpr std::size_t stack_bytes = std::size_t{256} << 10;

/// Suspended execution, on a separate stack or on the host's.
class Context {
 public:
  Context() = default;
  /// Starts `entry`, which never returns, on a stack of `size_bytes`, a multiple of 16, at the first `enter`.
  void prepare(char* stack, std::size_t size_bytes, void (*entry)());
  /// Makes this the context of the caller, whose stack exists already.
  void adopt();
  /// Leaves `from`, the running context, and resumes this one.
  void enter(Context& from);
  /// Must be the first call of `entry`, and follows every return. Stores the bounds of the host's stack in `host`.
  void arrived(Context* host = nullptr);

 private:
#if defined(__x86_64__)
  void* pointer_ = nullptr;
#else
  ucontext_t context_{};
#endif
  [[maybe_unused]] const void* bottom_ = nullptr;
  [[maybe_unused]] std::size_t size_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
  [[maybe_unused]] void* sanitizers_thread_ = nullptr;
};

}  // namespace trireme::gpu::host

#include "tests/support/gpu/fiber_context.hpp"

#include <algorithm>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(TRIREME_SANITIZE_THREAD)
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_read_range(const void* address, std::size_t size_bytes);
extern "C" void __tsan_write_range(void* address, std::size_t size_bytes);
#endif

// Saves the callee-saved registers on the stack and resumes where `to` was left. ucontext takes twenty times as long:
// it enters the kernel.
#if defined(__x86_64__)
asm(R"(
.text
.type trireme_switch_fiber, @function
trireme_switch_fiber:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size trireme_switch_fiber, . - trireme_switch_fiber
)");
extern "C" void trireme_switch_fiber(void** from, void* to);
#endif

namespace trireme::gpu::host {

#if defined(TRIREME_SANITIZE_THREAD)
void released(void* point) { __tsan_release(point); }
void acquired(void* point) { __tsan_acquire(point); }
void accessed(const void* from, void* to) {
  if (from != nullptr) __tsan_read_range(from, 16);
  __tsan_write_range(to, 16);
}
#endif

void Context::prepare(char* stack, std::size_t size_bytes, void (*entry)()) {
  bottom_ = stack;
  size_ = size_bytes;
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack, size_bytes);  // frames abandoned by a fault
#endif
#if defined(TRIREME_SANITIZE_THREAD)
  sanitizers_thread_ = __tsan_create_fiber(0);
#endif
#if defined(__x86_64__)
  void** top = reinterpret_cast<void**>(stack + size_bytes);
  std::fill(top - 8, top, nullptr);
  top[-2] = reinterpret_cast<void*>(entry);
  pointer_ = top - 8;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = size_bytes;
  makecontext(&context_, entry, 0);
#endif
}

void Context::adopt() {
#if defined(TRIREME_SANITIZE_THREAD)
  sanitizers_thread_ = __tsan_get_current_fiber();
#endif
}

void Context::enter(Context& from) {
#if defined(TRIREME_SANITIZE_THREAD)
  __tsan_switch_to_fiber(sanitizers_thread_, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, bottom_, size_);
#endif
#if defined(__x86_64__)
  trireme_switch_fiber(&from.pointer_, pointer_);
#else
  swapcontext(&from.context_, &context_);
#endif
  from.arrived();
}

void Context::arrived(Context* host) {
#if defined(__SANITIZE_ADDRESS__)
  if (host != nullptr)
    __sanitizer_finish_switch_fiber(nullptr, &host->bottom_, &host->size_);
  else
    __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#else
  static_cast<void>(host);
#endif
}

}  // namespace trireme::gpu::host

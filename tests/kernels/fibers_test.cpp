#include "tests/support/gpu/fibers.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <gpu/warp_groups.cuh>
#include <vector>

#include "tests/support/message_of.hpp"

// The layer that runs kernels on the host.
namespace trireme::gpu {
namespace {

using test::message_of;

constexpr const char* nothing = "nothing was thrown";
constexpr unsigned all_lanes = 0xffffffffU;

struct Sums {
  int values[4];
};

/// y[b] = sum over the block's threads of x[b, t]
void block_sum(const int* x, int* y) {
  int sum = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(all_lanes, sum, mask);
  auto& sums = shared<Sums>();
  if (threadIdx.x % 32 == 0) sums.values[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == blockDim.x - 1) y[blockIdx.x] = sums.values[0] + sums.values[1] + sums.values[2] + sums.values[3];
}

class Fibers : public testing::Test {
 protected:
  void TearDown() override { host::set_order(0); }
  /// Returns the message of the exception that the kernel throws.
  template <class... P>
  std::string fault(int threads, void (*kernel)(P...), std::type_identity_t<P>... arguments) {
    return message_of<std::logic_error>([&] { launch(stream_, {"faulty", 2, threads}, kernel, arguments...); });
  }
  void expect_sums(unsigned order) {
    std::vector<int> x(6 * 128), expected(6, 0), y(6, -1);
    for (int i = 0; i < 6 * 128; ++i) expected[i / 128] += x[i] = i * i % 1000;
    host::set_order(order);
    launch(stream_, {"block_sum", 6, 128}, block_sum, x.data(), y.data());
    EXPECT_EQ(y, expected) << "order " << order;
  }
  ImmediateStream stream_;
};

TEST_F(Fibers, SumABlockInAnyOrder) {
  for (unsigned order = 0; order < 4; ++order) expect_sums(order);
}

TEST_F(Fibers, SharedMemoryIsNaNInEveryBlock) {
  std::vector<float> seen(4, 0);
  launch(
      stream_, {"poison", 4, 32, sizeof(float)},
      +[](float* y) {
        float* memory = dynamic_shared<float>();
        if (threadIdx.x == 0) y[blockIdx.x] = *memory;
        if (threadIdx.x == 0) *memory = 1;
      },
      seen.data());
  for (const float value : seen) EXPECT_TRUE(std::isnan(value));
}

/// Warp 1 hands two numbers to warp 0 through one place, `arrivals` of its threads a phase.
void hand_over(unsigned arrivals, int* y) {
  struct Memory {
    Barrier filled, emptied;
    int number;
  };
  auto& memory = shared<Memory>();
  if (threadIdx.x == 0) {
    initialise(memory.filled, arrivals);
    initialise(memory.emptied, 32);
  }
  __syncthreads();
  for (unsigned phase = 0; phase < 2; ++phase) {
    if (threadIdx.x < 32) {
      wait_for_phase(memory.filled, phase);
      y[32 * phase + threadIdx.x] = memory.number;
      gpu::arrive(memory.emptied);
    } else if (threadIdx.x == 32) {
      if (phase > 0) wait_for_phase(memory.emptied, phase - 1);
      memory.number = 5 + static_cast<int>(phase);
      gpu::arrive(memory.filled);
    }
  }
}

TEST_F(Fibers, WaitForPhases) {
  for (unsigned order = 0; order < 3; ++order) {
    std::vector<int> y(64, -1);
    host::set_order(order);
    launch(stream_, {"hand_over", 1, 64}, hand_over, 1U, y.data());
    for (int i = 0; i < 64; ++i) EXPECT_EQ(y[i], 5 + i / 32);
  }
  int y[64];
  EXPECT_THAT(fault(64, hand_over, 2U, y), testing::HasSubstr("for the end of a phase"));
}

TEST_F(Fibers, DelayCopiesUntilAWait) {
  std::vector<float> from(8, 3), seen(3, 0);
  launch(
      stream_, {"copies", 1, 32, 32},
      +[](const float* x, float* y) {
        if (threadIdx.x != 0) return;
        auto* memory = dynamic_shared<float>();
        copy_async(memory, x, true);
        commit_copies();
        copy_async(memory + 4, x + 4, true);
        commit_copies();
        wait_for_copies<1>();
        y[0] = memory[3];
        y[1] = memory[4];
        wait_for_copies<0>();
        y[2] = memory[4];
      },
      from.data(), seen.data());
  EXPECT_EQ(seen[0], 3);
  EXPECT_TRUE(std::isnan(seen[1]));
  EXPECT_EQ(seen[2], 3);
}

TEST_F(Fibers, NameABarrierThatSomeThreadsMiss) {
  const std::string text = fault(
      128, +[] {
        if (threadIdx.x < 96) __syncthreads();
      });
  EXPECT_THAT(text, testing::MatchesRegex("kernel faulty, block 0 is stuck: threads 0 to 95 wait at "
                                          "fibers_test.cpp:[0-9]+ for the block; threads 96 to 127 have ended"));
}

TEST_F(Fibers, NameAnIncompleteWarp) {
  const std::string text = fault(
      32, +[] {
        if (threadIdx.x != 7) __syncwarp();
      });
  EXPECT_THAT(text, testing::MatchesRegex(".*threads 0 to 6 wait at .* for the warp; threads 7 to 7 have ended; "
                                          "threads 8 to 31 wait at .*"));
}

TEST_F(Fibers, CountStaticSharedMemoryToo) {
  struct Large {
    char bytes[32 << 10];
  };
  const auto text = [&](std::size_t dynamic) {
    return message_of<std::logic_error>([&] {
      launch(
          stream_, {"large", 1, 32, dynamic}, +[] { shared<Large>().bytes[threadIdx.x] = 0; });
    });
  };
  EXPECT_EQ(text(16 << 10), nothing);
  EXPECT_EQ(text((16 << 10) + 1),
            "kernel large: 49153 bytes of shared memory, 16385 of them dynamic; 49152 can be had");
  EXPECT_EQ(text((163 - 32) << 10), nothing);
  EXPECT_THAT(text(((163 - 32) << 10) + 1), testing::HasSubstr("; 166912 can be had"));
  expect_sums(0);  // and go on
}

TEST_F(Fibers, RefuseTooManyBlocks) {
  const auto start = [&] {
    launch(
        stream_, {"long", std::int64_t{1} << 31, 32}, +[] {});
  };
  EXPECT_EQ(message_of<ConfigError>(start),
            "the kernel long has 2147483648 blocks, and a GPU starts at most 2147483647. Try a smaller "
            "<micro_batch_size>");
}

/// Argument of a kernel with a pointer that counts if `enabled`, like that of Dropout.
struct WithSamples {
  WithSamples(const int* numbers) : samples(numbers) {}
  bool enabled() const { return true; }
  const int* samples;
};
struct WithDropout {
  WithSamples dropout;
};
struct Heads {
  const int* data = nullptr;
  std::int64_t stride = 0;
};
struct Inputs {
  Heads q, k;
  const float* statistics = nullptr;
};

TEST_F(Fibers, RefuseHostMemory) {
  int own = 0, other = 0;
  host::set_memory([&](const void* pointer) { return pointer == &own; });
  const auto text = [&](const int* first, const int* second) {
    return fault(
        32, +[](const int*, WithDropout) {}, first, WithDropout{{second}});
  };
  EXPECT_EQ(text(&own, &own), nothing);
  EXPECT_EQ(text(nullptr, &own), nothing);
  EXPECT_EQ(text(&other, &own), "kernel faulty was given memory that is not the GPU's");
  EXPECT_EQ(text(&own, &other), "kernel faulty was given memory that is not the GPU's");
  const auto within = [&](const int* key) {
    return fault(
        32, +[](Inputs) {}, Inputs{{&own, 1}, {key, 2}});
  };
  EXPECT_EQ(within(&own), nothing);
  EXPECT_EQ(within(&other), "kernel faulty was given memory that is not the GPU's");
  host::set_memory({});
}

TEST_F(Fibers, RethrowAnExceptionOfAThread) {
  EXPECT_EQ(fault(
                64,
                +[] {
                  if (threadIdx.x == 33) throw std::logic_error("a mistake");
                  __syncthreads();
                }),
            "a mistake");
  expect_sums(0);
}

TEST_F(Fibers, RefuseBlocksOfIncompleteWarps) {
  EXPECT_EQ(fault(
                33, +[] {}),
            "kernel faulty: 33 threads a block");
}

TEST(Alignment, CopiesAndMatricesAreAlignedTo16Bytes) {
  ImmediateStream stream;
  alignas(16) float from[8]{};
  const auto fault = [&](void (*kernel)(const float*)) {
    return message_of<std::logic_error>([&] { launch(stream, {"faulty", 1, 32, 1024}, kernel, from); });
  };
  const std::string text = "kernel faulty, fibers_test.cpp:[0-9]+: an address that is not a multiple of 16";
  EXPECT_THAT(fault([](const float* x) { copy_async(dynamic_shared<float>() + 2, x, true); }),
              testing::MatchesRegex(text));
  EXPECT_THAT(fault([](const float*) {
                std::uint32_t to[4];
                load_matrices(dynamic_shared<float>() + 4 * threadIdx.x + (threadIdx.x == 9 ? 1 : 0), to);
              }),
              testing::MatchesRegex(text));
}

}  // namespace
}  // namespace trireme::gpu

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "src/comm/forwarding_communicator.hpp"
#include "src/selftest/check.hpp"
#include "src/selftest/kernels/kernel_check.hpp"
#include "tests/fakes/faulty_backend.hpp"
#include "tests/support/mpi_world.hpp"

// Faults are injected on rank 1 of two. Each rank stands for a node, and every rank must report the second one.

namespace trireme::selftest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Files in memory.
class MemoryFiles : public Files {
 public:
  void write_and_sync(const std::string& path, std::span<const std::byte> bytes) override {
    files_[path].assign(bytes.begin(), bytes.end());
  }
  std::vector<std::byte> read(const std::string& path) override {
    if (const auto found = files_.find(path); found != files_.end()) return found->second;
    throw IoError("cannot read {}: there is no such file", path);
  }
  void remove_old(const std::string&, const std::string&) noexcept override {}
  void remove(const std::string& path) noexcept override { files_.erase(path); }
  std::size_t count() const { return files_.size(); }

 protected:
  std::map<std::string, std::vector<std::byte>> files_;
};

class Selftest : public testing::Test {
 protected:
  Report run_check(const Check& check) { return run({check}, context_); }
  static bool is_second() { return test::world().rank() == 1; }

  /// Expects exactly one failed result, on the second node.
  static void expect_fault(const Report& report, const std::string& check, const std::string& detail) {
    EXPECT_THAT(report.bad_nodes, ElementsAre("node1"));
    int faults = 0;
    for (const Result& result : report.results) {
      if (result.verdict != Verdict::failed) continue;
      ++faults;
      EXPECT_EQ(result.check, check);
      EXPECT_EQ(result.rank, 1);
      EXPECT_THAT(result.detail, HasSubstr(detail));
    }
    EXPECT_EQ(faults, 1) << table_of(report);
  }

  std::unique_ptr<Backend> cpu_ = make_backend(BackendChoice::cpu, 1);
  test::FaultyBackend backend_{*cpu_};
  MemoryFiles files_;
  Context context_{
      .backend = backend_,
      .reference = *cpu_,
      .world = test::world(),
      .groups = {{"world", &test::world(), true}},
      .place = {test::world().rank(), "node" + std::to_string(test::world().rank()), test::world().rank(), 0},
      .pci_address = {},
      .nvml = NVML_STUB,
      .ceilings = {},
      .properties = {},
      .allow_tf32 = false,
      .quick = false,
      .burn_seconds = 0.1,
      .min_share = 0.1,
      .files = &files_,
      .folder = {}};
};

TEST_F(Selftest, CpuKernelsAgreeWithFp64) {
  Checks checks;
  for (const Family& family : families) {
    checks.push_back(kernel_check(family, CaseSizes::small_and_model, {DType::fp32, DType::bf16, DType::fp16}));
  }
  const Report report = run(checks, context_);
  EXPECT_THAT(report.bad_nodes, IsEmpty()) << table_of(report);
}

TEST_F(Selftest, FindsOneWrongElementOfOneFusedProduct) {
  // Calls of case 4 in fp32, "linear bias gelu_tanh": the first run, before its repetitions.
  backend_.after_product = [](int call, TensorView result) {
    if (is_second() && call == 3 * 3 + 1) result.as<float>()[70] += 0.01F;
  };
  expect_fault(run_check(kernel_check(families[0], CaseSizes::small, {DType::fp32})), "gemm fp32",
               "result 1: element 70 of 2808");
}

TEST_F(Selftest, FindsADifferentBitInARepetitionOfAKernel) {
  backend_.after_product = [](int call, TensorView result) {
    if (is_second() && call == 2) result.as<bf16>()[5].bits ^= 1;
  };
  expect_fault(run_check(kernel_check(families[0], CaseSizes::small, {DType::bf16})), "gemm bf16",
               "other bits in repetition 2");
}

TEST_F(Selftest, ReportsAKernelFailureOnOneRankAsAResult) {
  backend_.after_product = [](int call, TensorView) {
    if (is_second() && call == 1) throw EnvironmentError("no kernel image is available");
  };
  expect_fault(run_check(kernel_check(families[0], CaseSizes::small, {DType::fp32})), "gemm fp32",
               "no kernel image is available");
}

TEST_F(Selftest, FindsTheRepetitionOfAFlippedBitInTheBurn) {
  context_.burn_seconds = 0.2;
  backend_.after_product = [](int call, TensorView result) {
    if (!is_second() || call != 3) return;
    std::uint32_t word = 0;
    std::memcpy(&word, result.data() + 400, sizeof word);
    word ^= 1;  // the last bit of the mantissa
    std::memcpy(result.data() + 400, &word, sizeof word);
  };
  expect_fault(run_check(burn_check()), "burn results", "repetition 2 of ");
}

TEST_F(Selftest, FindsASlowRank) {
  context_.min_share = 0.6;
  backend_.after_product = [](int, TensorView) {
    if (is_second()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  const Report report = run_check(speed_check());
  int slow = 0;
  for (const Result& result : report.results) {
    if (result.check != "product rate" || result.verdict != Verdict::slow) continue;
    ++slow;
    EXPECT_EQ(result.host, "node1");
  }
  EXPECT_EQ(slow, 1) << table_of(report);
}

TEST_F(Selftest, FindsDevicesFarBelowTheirCeilings) {
  const std::string free = table_of(run_check(speed_check()));
  EXPECT_THAT(free, HasSubstr("skipped  copy rate of the ceiling"));
  EXPECT_THAT(free, HasSubstr("no ceiling is known of "));
  context_.ceilings = {.bytes_per_s = 1, .operations_per_s = 1e18};
  const Report report = run_check(speed_check());  // both ranks are equally slow
  EXPECT_THAT(report.bad_nodes, ElementsAre("node0", "node1"));
  EXPECT_THAT(table_of(report), HasSubstr("SLOW     product rate of the ceiling"));
  EXPECT_THAT(table_of(report), HasSubstr("0 % of the device's ceiling"));
  EXPECT_THAT(table_of(report), HasSubstr("ok       copy rate of the ceiling"));
}

/// Returns a wrong element of sums on the second rank.
class WrongSums final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    ForwardingCommunicator::reduce_scatter(stream, in, out, op).wait(stream);
    if (rank() == 1) out.as<float>()[out.numel() - 1] += 1;
    return {};
  }
};

/// Loses the last message of a grouped exchange on the second rank.
class LostMessage final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  Work grouped_exchange(StreamPoint stream, std::span<const Transfer> transfers) override {
    const TensorView last = transfers.back().data;
    const std::vector<float> before(last.as<float>(), last.as<float>() + last.numel());
    ForwardingCommunicator::grouped_exchange(stream, transfers).wait(stream);
    if (rank() == 1) std::ranges::copy(before, last.as<float>());
    return {};
  }
};

TEST_F(Selftest, FindsAWrongCollective) {
  EXPECT_THAT(run_check(collectives_check()).bad_nodes, IsEmpty());
  WrongSums wrong(test::world());
  context_.groups = {{"world", &test::world(), true}, {"tensor", &wrong, true}, {"embedding", nullptr, false}};
  expect_fault(run_check(collectives_check()), "tensor collectives", "1000 elements: element 500 of 501");
  LostMessage lost(test::world());
  context_.groups = {{"data", &lost, true}};
  expect_fault(run_check(collectives_check()), "data collectives", "1000 elements: element 0 of 1002 is -1000");
}

TEST_F(Selftest, SkipsCollectivesAfterADeviceFailure) {
  const auto fail = [](Context& context) -> std::vector<Result> {
    if (context.place.rank == 1) throw EnvironmentError("the device is lost");
    return {};
  };
  const Checks checks = {{"failing", "nothing", Scope::rank, fail}, collectives_check(), latency_check()};
  const Report report = run(checks, context_);
  expect_fault(report, "failing", "the device is lost");
  EXPECT_THAT(table_of(report), HasSubstr("the device of rank 1 failed before"));
  EXPECT_THAT(table_of(report), HasSubstr("MPI latency across nodes"));
}

/// A file system that drops the last byte of every file.
class LossyFiles final : public MemoryFiles {
 public:
  void write_and_sync(const std::string& path, std::span<const std::byte> bytes) override {
    MemoryFiles::write_and_sync(path, bytes.first(bytes.size() - 1));
  }
};

TEST_F(Selftest, FindsAFileSystemThatLosesBytes) {
  context_.folder = "run";
  LossyFiles lossy;
  if (is_second()) context_.files = &lossy;
  const Report report = run_check(file_check());
  EXPECT_FALSE(report.passed());
  EXPECT_THAT(table_of(report), HasSubstr("-rank1, read after writing: 16777215 bytes instead of 16777216"));
  EXPECT_EQ(files_.count() + lossy.count(), 0);
}

TEST_F(Selftest, FindsAFolderThatIsNotShared) {
  context_.folder = "run";
  const Report report = run_check(file_check());  // each rank has separate files
  EXPECT_THAT(report.bad_nodes, ElementsAre("node0", "node1"));
  EXPECT_THAT(table_of(report), HasSubstr("there is no such file"));
  EXPECT_EQ(files_.count(), 0);
}

TEST_F(Selftest, FindsAGpuWithUncorrectedEccErrors) {
  EXPECT_TRUE(run_check(gpu_check()).results.empty());  // no GPU
  context_.pci_address = "0000:17:00.0";
  setenv("NVML_STUB_UNCORRECTED", is_second() ? "2" : "0", 1);
  const Report report = run_check(gpu_check());
  expect_fault(report, "GPU ECC errors", "2 uncorrected and 7 corrected");
  for (const char* row : {"GPU driver", "580.1", "GPU largest clock", "1980", "GPU power limit", "700"}) {
    EXPECT_THAT(table_of(report), HasSubstr(row));
  }
}

TEST_F(Selftest, FindsTheReasonOfAGpuSlowdownUnderLoad) {
  EXPECT_EQ(run_check(burn_check()).results.size(), 4u) << "two results of each rank on the CPU";
  context_.pci_address = "0000:17:00.0";
  setenv("NVML_STUB_SLOWDOWNS", is_second() ? "132" : "4", 1);  // the limit of power, and the power brake
  expect_fault(run_check(burn_check()), "GPU slowdown", "64 C, 690 W, limit of power in ");
  EXPECT_THAT(table_of(run_check(burn_check())), HasSubstr(", power brake in "));
  setenv("NVML_STUB_SLOWDOWNS", "4", 1);
  setenv("NVML_STUB_CLOCK", is_second() ? "855" : "1710", 1);
  context_.min_share = 0.8;
  const Report report = run_check(burn_check());
  int slow = 0;
  for (const Result& result : report.results) {
    if (result.check != "GPU clock under load" || result.verdict != Verdict::slow) continue;
    ++slow;
    EXPECT_EQ(result.host, "node1");
    EXPECT_THAT(result.detail, HasSubstr("% of the median's speed; 64 C, 690 W, limit of power in "));
  }
  EXPECT_EQ(slow, 1) << table_of(report);
}

TEST_F(Selftest, ReportsWhyAGpuStateIsUnknown) {
  context_.pci_address = "0000:99:00.0";
  EXPECT_THAT(table_of(run_check(gpu_check())), HasSubstr("NVML finds no GPU at PCI 0000:99:00.0"));
  context_.nvml = "no_such_library.so";
  const Report report = run_check(gpu_check());
  EXPECT_TRUE(report.passed());
  EXPECT_THAT(table_of(report), HasSubstr("skipped  GPU state"));
  EXPECT_THAT(table_of(report), HasSubstr("no_such_library.so"));
}

TEST_F(Selftest, ShowsANodeOfAnotherVersionAndTheMemory) {
  context_.properties = {{"driver", is_second() ? "550" : "580"}};
  const Report report = run_check(machine_check());
  EXPECT_TRUE(report.passed());
  EXPECT_THAT(table_of(report), HasSubstr("differs  driver"));
  EXPECT_THAT(table_of(report), HasSubstr("memory"));
}

}  // namespace
}  // namespace trireme::selftest

// The PTX of all kernels, and mistakes planted in it: nvcc's output is really executed, and mistakes are found.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "cuda/kernels/families.hpp"
#include "tests/kernels/flash_attention_case.hpp"
#include "tests/ptx/runtime.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/test_backend.hpp"

namespace trireme::ptx {
namespace {

using testing::HasSubstr;

/// Fails if a kernel was never launched, unless a filter on the command line skips tests.
class EveryKernelWasLaunched : public testing::Environment {
  void TearDown() override {
    const char* required = std::getenv("TRIREME_EVERY_KERNEL");
    if (required == nullptr || std::string(required) != "1") return;
    for (const std::string& name : kernels_not_launched()) ADD_FAILURE() << name << " was not launched";
  }
};
const testing::Environment* const environment = testing::AddGlobalTestEnvironment(new EveryKernelWasLaunched);

TEST(PtxOfKernels, IsDecoded) {
  int kernels = 0;
  for (std::string& text : embedded_ptx()) {
    Module module(std::move(text));
    for (const std::string& name : module.kernel_names()) {
      EXPECT_NO_THROW(module.kernel(name)) << name;
      ++kernels;
    }
  }
  EXPECT_GT(kernels, 100);
}

// The kernels' own tests of attention in parts take long here.
TEST(PtxOfKernels, PartsOfAttentionCombineToFullAttention) {
  const auto backend = test::make_backend(1);
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    const test::GivenAttention given(*backend, dtype, {20, 24, 1, 2, 1, 12, true, 0.2}, 1);
    test::expect_parts_join(given, {{16, 24}, {0, 16}}, test::tolerance(DType::fp32, test::Operation::sum));
  }
}

// A row of logits stays in shared memory if it fits, and has the same bits if it does not.
TEST(PtxOfKernels, RowsOfLogitsBeyondSharedMemoryAreReadAgain) {
  const auto backend = test::make_backend(1);
  Backend& b = *backend;
  const auto reading_again = cuda::make_cross_entropy(2048);  // leaves no byte for a row
  std::vector<double> logits(3 * 300);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 8 * std::sin(static_cast<double>(i));
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    const DType accumulation = accumulation_type(dtype);
    const Tensor targets = test::make_tensor(b, {3}, std::vector<std::int32_t>{0, 299, 17});
    const Tensor weights = test::make_tensor(b, accumulation, {3}, {0.5, 0.25, 0.125});
    const auto computed = [&](CrossEntropyKernels& kernels, double soft_cap) {
      const Tensor losses = test::make_tensor(b, accumulation, {3}, {0, 0, 0});
      const Tensor gradient = test::make_tensor(b, dtype, {3, 300}, logits);
      kernels.losses_and_gradient(b.compute_stream(), {0, 300}, targets, weights, weights, soft_cap, losses, gradient);
      return std::pair(test::values_of(b, losses), test::values_of(b, gradient));
    };
    for (const double soft_cap : {0.0, 10.0}) {
      EXPECT_EQ(computed(*reading_again, soft_cap), computed(b.cross_entropy(), soft_cap)) << name_of(dtype);
    }
  }
}

/// Largest difference between tensors, relative to the largest expected element.
double difference(const std::vector<double>& actual, const std::vector<double>& expected) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double here = std::fabs(actual[i] - expected[i]);
    worst = here <= worst ? worst : here;  // NaN stays
    largest = std::max(largest, std::fabs(expected[i]));
  }
  return std::isnan(worst) ? 1e9 : worst / largest;
}

/// Largest error of attention and its gradients, with the PTX as it is now.
double attention_error() {
  const auto backend = test::make_backend(1);
  const test::GivenAttention given(*backend, DType::bf16, {70, 70, 1, 1, 1, 64}, 1);
  const test::AttentionTensors actual = compute(given);
  test::AttentionTensors expected = given.reference();
  given.reference_backward(expected);
  return std::max({difference(actual.out, expected.out), difference(actual.dq, expected.dq),
                   difference(actual.dk, expected.dk), difference(actual.dv, expected.dv)});
}

/// The same of attention by warp groups, over more tiles of keys than stages in shared memory.
double group_attention_error() {
  const auto backend = test::make_backend(1);
  EXPECT_TRUE(use_warp_groups(backend->attention(), true));
  const test::GivenAttention given(*backend, DType::bf16, {70, 330, 1, 1, 1, 64}, 1);
  const Tensor out = given.like(given.q, given.dtype), lse = given.statistics();
  backend->attention().attention(backend->compute_stream(), given.problem, given.queries(given.q), given.keys(given.k),
                                 given.keys(given.v), given.queries(out), lse);
  return difference(test::values_of(*backend, out), given.reference().out);
}

/// Exchanges two registers of a list in braces, number `list` of the line.
std::string with_exchanged(std::string line, int list, std::size_t first, std::size_t second) {
  std::size_t begin = 0;
  for (int i = 0; i <= list; ++i) begin = line.find('{', begin) + 1;
  const std::size_t end = line.find('}', begin);
  std::vector<std::string> registers(1);
  for (std::size_t at = begin; at < end; ++at) {
    if (line[at] == ',') registers.emplace_back();
    if (line[at] != ',') registers.back() += line[at];
  }
  std::swap(registers.at(first), registers.at(second));
  std::string joined;
  for (const std::string& name : registers) joined += (joined.empty() ? "" : ",") + name;
  return line.replace(begin, end - begin, joined);
}

class PlantedMistake : public testing::Test {
 protected:
  ~PlantedMistake() override { edit_ptx({}); }
  /// Changes every line that has `part` in it.
  void plant(const std::string& part, std::function<std::string(const std::string& line)> change) {
    edit_ptx([this, part, change](const std::string& text) {
      std::string edited;
      for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
        end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, end - at);
        const bool changes = line.find(part) != std::string::npos;
        planted_ += changes ? 1 : 0;
        edited += (changes ? change(line) : line) + "\n";
      }
      return edited;
    });
  }
  static std::string error() { return test::message_of<std::exception>(attention_error); }
  int planted_ = 0;
};

constexpr double right = 0.02, wrong = 0.1;

TEST_F(PlantedMistake, WithoutOneTheAttentionIsCorrect) { EXPECT_LT(attention_error(), right); }

TEST_F(PlantedMistake, ExchangedOperandsOfAProductAreFound) {
  for (const auto& [list, first, second] : {std::array{1, 1, 2}, {1, 0, 1}, {2, 0, 1}, {3, 0, 1}, {0, 1, 2}}) {
    plant("mma.sync", [&](const std::string& line) {
      return with_exchanged(line, list, static_cast<std::size_t>(first), static_cast<std::size_t>(second));
    });
    EXPECT_GT(attention_error(), wrong) << "list " << list << ", registers " << first << " and " << second;
  }
  EXPECT_GT(planted_, 0);
}

TEST_F(PlantedMistake, ExchangedOrTransposedMatricesAreFound) {
  plant("ldmatrix", [](const std::string& line) { return with_exchanged(line, 0, 1, 2); });
  EXPECT_GT(attention_error(), wrong);
  plant(".trans", [](std::string line) { return line.replace(line.find(".trans"), 6, ""); });
  EXPECT_GT(attention_error(), wrong);
  EXPECT_GT(planted_, 0);
}

TEST_F(PlantedMistake, ACopyThatIsNotWaitedForIsFound) {
  plant("cp.async.wait_group", [](const std::string&) { return "cp.async.wait_group 2;"; });
  EXPECT_THAT(error(), HasSubstr("into this shared memory was not waited for"));
}

TEST_F(PlantedMistake, AMissingBarrierIsFound) {
  for (const std::string barrier : {"bar.sync", "bar.warp.sync"}) {
    plant(barrier, [](const std::string&) { return ""; });
    EXPECT_THAT(error(), HasSubstr("and no barrier is between")) << barrier;
  }
}

TEST_F(PlantedMistake, HazardsOfWarpGroupsAreFound) {
  EXPECT_LT(group_attention_error(), right);
  const auto instead = [](const std::string& line) { return [line](const std::string&) { return line; }; };
  const auto with_other_phase = [](const std::string& line) {
    const std::size_t parity = line.find_last_of(',') + 1, end = line.find(';');
    return fmt::format("{{.reg .b32 other; xor.b32 other,{},1; {}other; }}", line.substr(parity, end - parity),
                       line.substr(0, parity));
  };
  const struct {
    const char* part;
    std::function<std::string(const std::string&)> change;
    const char* found;
  } mistakes[] = {
      {"wgmma.wait_group", instead(""), "accesses a register of a product that was not waited for"},
      {"wgmma.commit_group", instead(""), "accesses a register of a product that was not waited for"},
      {"wgmma.fence", instead(""), "without wgmma.fence before the products"},
      {"fence.proxy.async", instead(""), "wrote this shared memory, and no fence.proxy.async of it follows"},
      {"cp.async.wait_group", instead("cp.async.wait_group 3;"), "shared memory was not waited for"},
      {"mbarrier.arrive", instead(""), "waits for a phase that does not end"},
      {"mbarrier.init", instead(""), "this mbarrier was not initialised"},
      {"mbarrier.try_wait", instead("setp.eq.u32 ended,0,0;"), "and no barrier is between"},
      {"mbarrier.try_wait", with_other_phase, "and no barrier is between"},
      {"bar.sync", instead(""), "and no barrier is between"}};
  for (const auto& [part, change, found] : mistakes) {
    planted_ = 0;
    plant(part, change);
    EXPECT_THAT(test::message_of<std::exception>(group_attention_error), HasSubstr(found)) << part;
    EXPECT_GT(planted_, 0) << part;
  }
}

TEST_F(PlantedMistake, OtherRightFactorsOfWarpGroupsAreFound) {
  const auto is_found = [&](const std::string& from, const std::string& to) {
    plant("wgmma.mma_async", [=](std::string line) {
      const std::size_t at = line.find(from);
      return at == std::string::npos ? line : line.replace(at, from.size(), to);
    });
    try {
      return group_attention_error() > wrong;
    } catch (const std::exception&) {
      return true;  // it reads what was not written
    }
  };
  EXPECT_FALSE(is_found("add,1,1,0;", "add,1,1,0;"));
  EXPECT_TRUE(is_found("add,1,1,0;", "add,1,1,1;")) << "keys as if transposed";
  EXPECT_TRUE(is_found("add,1,1,1;", "add,1,1,0;")) << "values as if not";
}

}  // namespace
}  // namespace trireme::ptx

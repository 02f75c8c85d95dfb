// Choice of the algorithm of a product, by scripted times.
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "cuda/runtime/error.hpp"
#include "cuda/runtime/graph.hpp"
#include "tests/cuda/scripted_gemm.hpp"
#include "tests/fakes/timeline.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::cuda {
namespace {

using namespace test;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST_F(CudaGemm, TakesTheFormAndAlgorithmOfLeastTimeAndRemembersThem) {
  const auto gemm = make([](const fake_cublaslt::Last& last) {
    return last.epilogue == CUBLASLT_EPILOGUE_DEFAULT && last.algorithm == 2 ? 2e5 : 3e5;
  });
  multiply(*gemm);
  EXPECT_EQ(fake_cublaslt::last().algorithm, 2u);
  EXPECT_EQ(fake_cublaslt::last().epilogue, CUBLASLT_EPILOGUE_DEFAULT);
  const int products = fake_cublaslt::products(), searches = fake_cublaslt::searches();
  multiply(*gemm);
  EXPECT_EQ(fake_cublaslt::products(), products + 1);
  EXPECT_EQ(fake_cublaslt::searches(), searches);
}

TEST_F(CudaGemm, TiesGoToTheFusedFormAndTheFirstSuggestion) {
  multiply(*make([](const fake_cublaslt::Last&) { return 2e5; }));
  EXPECT_EQ(fake_cublaslt::last().algorithm, 0u);
  EXPECT_EQ(fake_cublaslt::last().epilogue, CUBLASLT_EPILOGUE_BIAS);
}

TEST_F(CudaGemm, ABiasGradientTakesTheFormOfLeastTime) {
  const Tensor dy = test::random_tensor(*cpu_, DType::bf16, {40, 24}, 1);
  const Tensor x = test::random_tensor(*cpu_, DType::bf16, {40, 16}, 2);
  std::vector<double> expected(24, 1);
  const std::vector<double> gradients = test::values_of(*cpu_, dy);
  for (std::size_t i = 0; i < gradients.size(); ++i) expected[i % 24] += gradients[i];
  for (const bool fused : {true, false}) {
    const auto gemm = make(fused ? prefer_fused : prefer_separate, {.cache_file = ""});
    const Tensor dw = test::poisoned_tensor(*cpu_, DType::fp32, {24, 16});
    const Tensor dbias = test::make_tensor(*cpu_, DType::fp32, {24}, std::vector<double>(24, 1));
    gemm->linear_backward_weight(stream_, dy, x, dw, dbias, ProductSum::overwrite);
    stream_.synchronize();
    EXPECT_EQ(gemm->latest_epilogue_is_fused(), fused);
    EXPECT_EQ(fake_cublaslt::last().epilogue, fused ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_DEFAULT);
    test::expect_close(test::values_of(*cpu_, dbias), expected, test::tolerance(DType::fp32, test::Operation::sum),
                       fused ? "fused" : "separate");
  }
}

TEST_F(CudaGemm, DeterministicTakesTheFirstSuggestionAndMeasuresNothing) {
  multiply(*make(prefer_separate, {.deterministic = true, .cache_file = file_}));
  EXPECT_THAT(measured_.products, IsEmpty());
  EXPECT_EQ(fake_cublaslt::last().algorithm, 0u);
  EXPECT_EQ(fake_cublaslt::last().epilogue, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

// Ranks measure for themselves: what they repeat must not follow from their times.
TEST_F(CudaGemm, RepeatedProductsTakeTheFirstSuggestionWhateverOthersOfTheirShapeTake) {
  const auto gemm = make([](const fake_cublaslt::Last& last) { return last.algorithm == 2 ? 2e5 : 3e5; });
  for (int round = 0; round < 2; ++round) {
    {
      const RepeatedProducts repeated(*gemm, true);
      measured_ = {};
      multiply(*gemm);
      EXPECT_THAT(measured_.products, IsEmpty());
      EXPECT_EQ(fake_cublaslt::last().algorithm, 0u);
    }
    multiply(*gemm);
    EXPECT_EQ(fake_cublaslt::last().algorithm, 2u);
  }
  // A weight's gradient that runs after the scope keeps it.
  const Tensor dy = random_tensor(*cpu_, DType::bf16, {8, 24}, 1), x = random_tensor(*cpu_, DType::bf16, {8, 16}, 2);
  const Tensor dw = test::poisoned_tensor(*cpu_, DType::fp32, {24, 16});
  measured_ = {};
  gemm->collect_weight_gradients();
  {
    const RepeatedProducts repeated(*gemm, true);
    gemm->linear_backward_weight(stream_, dy, x, dw, {}, ProductSum::overwrite);
  }
  gemm->run_collected(stream_);
  stream_.synchronize();
  EXPECT_THAT(measured_.products, IsEmpty());
}

TEST_F(CudaGemm, TheNextRunTakesItsChoicesFromTheFile) {
  const GemmOptions options{.cache_file = file_};
  const auto second_best = [](const fake_cublaslt::Last& last) { return last.algorithm == 1 ? 2e5 : 3e5; };
  multiply(*make(second_best, options));
  measured_ = {};
  multiply(*make(prefer_separate, options));
  EXPECT_THAT(measured_.products, IsEmpty());
  EXPECT_EQ(fake_cublaslt::last().algorithm, 1u);
  EXPECT_EQ(fake_cublaslt::last().epilogue, CUBLASLT_EPILOGUE_BIAS);
  // TF32 is another product.
  multiply(*make(second_best, {.allow_tf32 = true, .cache_file = options.cache_file}));
  EXPECT_THAT(measured_.products, Not(IsEmpty()));
}

TEST_F(CudaGemm, DuringACollectiveAProductUsesFewerMultiprocessors) {
  const GemmOptions options{.cache_file = file_};
  auto gemm = make(prefer_fused, options);
  const Multiprocessors::Token reserved = device_->multiprocessors().reserve(16);
  for (int round = 0; round < 2; ++round) {
    measured_ = {};
    multiply(*gemm);
    EXPECT_EQ(fake_cublaslt::last().multiprocessors, 0);
    const Multiprocessors::Token collective = device_->multiprocessors().begin_collective();
    multiply(*gemm);
    EXPECT_EQ(fake_cublaslt::last().multiprocessors, fake_cuda::multiprocessors - 16);
    EXPECT_EQ(measured_.products.empty(), round > 0);
  }
  gemm.reset();
  const std::string lines = content_of(options.cache_file);
  EXPECT_THAT(lines, AllOf(HasSubstr("24x8x16 = bias align 64\t"), HasSubstr("24x8x16 = bias align 64 on 116\t")));
}

double about_equal(const fake_cublaslt::Last& last) { return 1000 + static_cast<double>(last.algorithm); }

TEST_F(CudaGemm, GroupedProductsRunBesideOneAnotherOnceTheyAreMeasured) {
  const std::vector<std::int64_t> rows = {8, 8, 0, 8, 8, 8, 8, 8};
  const Tensor x = random_tensor(*cpu_, DType::bf16, {56, 16}, 1), w = random_tensor(*cpu_, DType::bf16, {24, 16}, 2);
  const Tensor y = poisoned_tensor(*cpu_, DType::bf16, {56, 24});
  const std::vector<TensorView> weights(rows.size(), w);
  const auto gemm = make(about_equal);
  for (const bool is_measured : {false, true}) {
    measured_ = {};
    fake_cuda::start_trace();
    gemm->grouped_linear(stream_, rows, x, weights, y);
    const std::unique_ptr<Event> end = stream_.record();
    const fake_cuda::Timeline timeline = fake_cuda::simulate(fake_cuda::take_trace());
    stream_.synchronize();
    EXPECT_EQ(measured_.products.empty(), is_measured);
    if (!is_measured) continue;
    ASSERT_EQ(timeline.size(), 7u);
    // Four begin together, then three.
    for (std::size_t i = 0; i < 7; ++i) {
      EXPECT_EQ(timeline[i].stream, timeline[i % 4].stream) << i;
      EXPECT_EQ(timeline[i].begin_us, timeline[i < 4 ? 0 : 4].begin_us) << i;
    }
    EXPECT_GE(timeline[4].begin_us, timeline[0].end_us);
  }
}

TEST_F(CudaGemm, CollectedGradientsOfWeightsRunBesideOneAnotherOnceTheyAreMeasured) {
  const Tensor dy = random_tensor(*cpu_, DType::bf16, {40, 24}, 1), x = random_tensor(*cpu_, DType::bf16, {40, 16}, 2);
  const Tensor expected = poisoned_tensor(*cpu_, DType::fp32, {24, 16});
  const auto gemm = make(about_equal);
  for (const bool is_measured : {false, true}) {
    measured_ = {};
    std::vector<Tensor> dw;
    fake_cuda::start_trace();
    gemm->collect_weight_gradients();
    const int products = fake_cublaslt::products();
    for (int i = 0; i < 3; ++i) {
      dw.push_back(poisoned_tensor(*cpu_, DType::fp32, {24, 16}));
      gemm->linear_backward_weight(stream_, dy, x, dw.back(), {}, ProductSum::overwrite);
    }
    EXPECT_EQ(fake_cublaslt::products(), products);
    gemm->run_collected(stream_);
    const std::unique_ptr<Event> end = stream_.record();
    const fake_cuda::Timeline timeline = fake_cuda::simulate(fake_cuda::take_trace());
    gemm->linear_backward_weight(stream_, dy, x, expected, {}, ProductSum::overwrite);
    stream_.synchronize();
    for (const Tensor& each : dw) EXPECT_EQ(values_of(*cpu_, each), values_of(*cpu_, expected));
    EXPECT_EQ(measured_.products.empty(), is_measured);
    if (!is_measured) continue;
    ASSERT_EQ(timeline.size(), 3u);
    for (const auto& each : timeline) EXPECT_EQ(each.begin_us, timeline[0].begin_us);
  }
}

TEST_F(CudaGemm, TwentyLengthsTakeTwoMeasurementsInEitherOrderAndOneWriteOfTheFile) {
  const auto deterministic = make(about_equal, {.deterministic = true, .cache_file = ""});
  for (const bool rising : {true, false}) {
    const GemmOptions options{.cache_file = folder_ / (rising ? "rising" : "falling")};
    auto gemm = make(about_equal, options);
    fake_cublaslt::reset();
    measured_ = {};
    for (int i = 0; i < 20; ++i) {
      const std::int64_t rows = rising ? 65 + i : 84 - i;
      const std::vector<double> y = multiply(*gemm, rows);
      EXPECT_EQ(fake_cublaslt::last().columns, static_cast<std::uint64_t>(rows));
      EXPECT_EQ(y, multiply(*deterministic, rows)) << rows;
    }
    // Two classes, each with six measurements of three algorithms in two forms.
    EXPECT_EQ(measured_.products.size(), 2 * 6 * 6);
    for (const fake_cublaslt::Last& one : measured_.products) EXPECT_THAT(one.columns, testing::AnyOf(64, 80));
    EXPECT_FALSE(std::filesystem::exists(options.cache_file));
    gemm.reset();
    EXPECT_EQ(std::ranges::count(content_of(options.cache_file), '\n'), 2);
  }
  EXPECT_EQ(content_of(folder_ / "rising"), content_of(folder_ / "falling"));
}

TEST_F(CudaGemm, ALengthForWhichTheAlgorithmOfItsClassIsRefusedTakesTheFirstSuggestion) {
  const auto gemm = make([](const fake_cublaslt::Last& last) { return last.algorithm == 2 ? 2e5 : 3e5; });
  multiply(*gemm, 64);
  EXPECT_EQ(fake_cublaslt::last().algorithm, 2u);
  measured_ = {};
  fake_cublaslt::behaviour().usable_algorithms = 2;
  multiply(*gemm, 65);
  EXPECT_EQ(fake_cublaslt::last().algorithm, 0u);
  fake_cublaslt::behaviour().usable_algorithms = UINT64_MAX;
  fake_cublaslt::behaviour().refused = {2};  // after the check
  multiply(*gemm, 66);
  EXPECT_EQ(fake_cublaslt::last().algorithm, 0u);
  EXPECT_THAT(measured_.products, IsEmpty());
}

TEST_F(CudaGemm, ARunMeasures256ProductsAtMost) {
  const auto gemm = make([](const fake_cublaslt::Last& last) { return last.algorithm == 1 ? 2e5 : 3e5; });
  for (std::int64_t outputs = 1; outputs <= 257; ++outputs) {
    measured_ = {};
    const Tensor x = test::random_tensor(*cpu_, DType::bf16, {1, 8}, 1);
    const Tensor w = test::random_tensor(*cpu_, DType::bf16, {outputs, 8}, 2);
    const Tensor y = test::poisoned_tensor(*cpu_, DType::bf16, {1, outputs});
    gemm->linear(stream_, x, w, {}, Activation::none, {}, y);
    stream_.synchronize();
    EXPECT_EQ(measured_.products.empty(), outputs > 256) << outputs;
    EXPECT_EQ(fake_cublaslt::last().algorithm, outputs > 256 ? 0u : 1u) << outputs;
  }
}

TEST_F(CudaGemm, TheFileIsWrittenAfterTheMeasurements) {
  const auto gemm = make(prefer_fused, {.cache_file = file_});
  multiply(*gemm);
  for (int i = 0; i < 999; ++i) multiply(*gemm);
  EXPECT_FALSE(std::filesystem::exists(file_));
  multiply(*gemm);
  EXPECT_TRUE(std::filesystem::exists(file_));
}

TEST_F(CudaGemm, AKeptAlgorithmThatTheLibraryRefusesIsChosenAnew) {
  const GemmOptions options{.cache_file = file_};
  multiply(*make([](const fake_cublaslt::Last& last) { return last.algorithm == 2 ? 2e5 : 3e5; }, options));
  fake_cublaslt::behaviour().usable_algorithms = 2;
  fake_cublaslt::behaviour().algorithms = 2;
  measured_ = {};
  multiply(*make(prefer_fused, options));
  EXPECT_THAT(measured_.products, Not(IsEmpty()));
  // It fails in the query, or in the run.
  const std::uint64_t kept = fake_cublaslt::last().algorithm;
  fake_cublaslt::behaviour().refused = {kept};
  measured_ = {};
  multiply(*make(prefer_fused, options));
  EXPECT_THAT(measured_.products, Not(IsEmpty()));
  EXPECT_NE(fake_cublaslt::last().algorithm, kept);
}

TEST_F(CudaGemm, ASuggestionThatTheLibraryRefusesIsSkipped) {
  for (const bool deterministic : {false, true}) {
    fake_cublaslt::behaviour().refused = {0, 2};
    multiply(*make(prefer_fused, {.deterministic = deterministic, .cache_file = ""}));
    EXPECT_EQ(fake_cublaslt::last().algorithm, 1u);
    fake_cublaslt::behaviour().refused = {0, 1, 2};
    EXPECT_THROW(multiply(*make(prefer_fused, {.deterministic = deterministic, .cache_file = ""})), CublasError);
  }
}

TEST_F(CudaGemm, AProductWithoutAlgorithmIsAnErrorThatNamesIt) {
  fake_cublaslt::behaviour().algorithms = 0;
  EXPECT_THAT(test::message_of<CublasError>([&] { multiply(*make(prefer_fused)); }),
              AllOf(HasSubstr("no algorithm for the product bf16 bf16 TN 24x8x16 = bias align 64"),
                    HasSubstr("rank 0 on node7, GPU 0 (Fake H200)")));
}

TEST_F(CudaGemm, WithoutMemoryForTheMeasurementItTakesTheFirstSuggestionForThisRunAlone) {
  const auto gemm = make(prefer_separate, {.cache_file = file_});
  fake_cublaslt::behaviour().refused = {0};
  fake_cuda::fail_next("cudaMallocFromPoolAsync", cudaErrorMemoryAllocation);
  multiply(*gemm);
  EXPECT_THAT(measured_.products, IsEmpty());
  EXPECT_EQ(fake_cublaslt::products(), 1);
  EXPECT_EQ(fake_cublaslt::last().algorithm, 1u);
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(CudaGemm, MeasuresAllCandidatesInTurnAfterOneWarmUpOfTheGpu) {
  const auto gemm = make([](const fake_cublaslt::Last& last) {
    return 1000.0 + static_cast<double>(last.algorithm) + (last.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 10 : 0);
  });
  for (const std::int64_t rows : {8, 4}) {
    measured_.products.clear();
    multiply(*gemm, rows);
    EXPECT_EQ(measured_.warm_ups, 13) << "200 ms, by 16 products of 1 ms, at the first measurement";
    std::vector<std::pair<cublasLtEpilogue_t, std::uint64_t>> expected, actual;
    for (int round = 0; round < 6; ++round) {
      for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_DEFAULT}) {
        for (std::uint64_t algorithm = 0; algorithm < 3; ++algorithm) expected.emplace_back(epilogue, algorithm);
      }
    }
    for (const fake_cublaslt::Last& one : measured_.products) actual.emplace_back(one.epilogue, one.algorithm);
    EXPECT_EQ(actual, expected);
  }
}

TEST_F(CudaGemm, RisingClocksDoNotBiasTheChoice) {
  fake_cublaslt::behaviour().algorithms = 10;
  double slower = 1.5;
  multiply(*make([&](const fake_cublaslt::Last& last) {
    slower = std::max(1.0, slower - 0.005);
    return slower * (last.algorithm == 1 ? 960 : 1000);
  }));
  EXPECT_EQ(fake_cublaslt::last().algorithm, 1u);
}

TEST_F(CudaGemm, DropsSlowCandidatesEarly) {
  fake_cublaslt::behaviour().cannot_fuse = {CUBLASLT_EPILOGUE_BIAS};
  fake_cublaslt::behaviour().algorithms = 4;
  for (const double unit_us : {10.0, 1000.0, 4000.0}) {
    measured_ = {};
    multiply(*make([&](const fake_cublaslt::Last& last) {
      return unit_us * std::array{105.0, 100.0, 150.0, 250.0}[last.algorithm];
    }));
    std::array<int, 4> times{};
    for (const fake_cublaslt::Last& one : measured_.products) ++times[one.algorithm];
    // In counted rounds 150 is measured once; half a second ends them.
    const int rounds = unit_us == 10 ? 5 : unit_us == 1000 ? 2 : 1;
    EXPECT_THAT(times, ElementsAre(1 + rounds, 1 + rounds, 2, 1)) << unit_us;
    EXPECT_EQ(fake_cublaslt::last().algorithm, 1u);
  }
}

TEST_F(CudaGemm, NoTrialRunFindsItsOperandsInTheL2Cache) {
  constexpr std::size_t set_bytes = 2 * (8 * 16 + 24 * 16 + 8 * 24);
  ASSERT_GT(device_->l2_bytes(), 10 * set_bytes);
  fake_cublaslt::behaviour().algorithms = 32;
  multiply(*make([](const fake_cublaslt::Last&) { return 1000.0; }));
  for (const auto matrix : {&fake_cublaslt::Last::a, &fake_cublaslt::Last::b, &fake_cublaslt::Last::d}) {
    std::map<const void*, std::size_t> latest;
    std::size_t shortest = measured_.products.size();
    for (std::size_t i = 0; i < measured_.products.size(); ++i) {
      const auto [found, is_new] = latest.try_emplace(measured_.products[i].*matrix, i);
      if (!is_new) shortest = std::min(shortest, i - std::exchange(found->second, i));
    }
    // Between two runs on one address the others move more than the cache holds. Between the matrices are up to 256
    // bytes that nothing reads.
    EXPECT_EQ(shortest, latest.size());
    EXPECT_GT(latest.size() * (set_bytes + 3 * 256), device_->l2_bytes());
  }
}

TEST_F(CudaGemm, TrialRunsHaveTheAlignmentDeclaredToCublasLt) {
  const Tensor x = random_tensor(*cpu_, DType::bf16, {9, 16}, 1), w = random_tensor(*cpu_, DType::bf16, {24, 16}, 2);
  const Tensor y = poisoned_tensor(*cpu_, DType::bf16, {8, 24});
  fake_cublaslt::behaviour().algorithms = 50;
  for (const std::int64_t row : {0, 1}) {
    measured_ = {};
    const unsigned alignment = row == 0 ? 64 : 32;
    make([](const fake_cublaslt::Last&) {
      return 1e5;
    })->linear(stream_, x.view().rows(row, 8), w, {}, Activation::none, {}, y);
    stream_.synchronize();
    EXPECT_EQ(fake_cublaslt::last_search().wanted, 32);
    EXPECT_THAT(fake_cublaslt::last_search().alignment, Each(alignment));
    EXPECT_EQ(fake_cublaslt::last_search().reduction_schemes, unsigned{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (std::size_t i = 1; i < measured_.products.size(); ++i) {
      const fake_cublaslt::Last &before = measured_.products[i - 1], &one = measured_.products[i];
      EXPECT_NE(one.a, before.a);
      if (one.d == y.view().data()) continue;  // the operands themselves
      for (const void* address : {one.a, one.b, one.d}) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % (2 * alignment), alignment);
      }
    }
  }
}

TEST_F(CudaGemm, MeasuresNothingBesideACollectiveNorWaitsForAMessage) {
  multiply(*make(prefer_fused));  // the first launch of a kernel waits for all that is under way
  CudaStream collectives(device_), messages(device_);
  const auto watch =
      device_->watch({.check = [] {}, .collectives = [&] { return cudaStreamQuery(collectives.handle()); }});
  bool collective_done = false, message_came = false;
  fake_cuda::enqueue(collectives.handle(), "all-reduce", [&] { collective_done = true; });
  fake_cuda::enqueue_until(
      messages.handle(), "receive", [] {}, [&] { return message_came; }, [] {});
  int beside = 0;
  measured_ = {};
  const auto gemm = make([&](const fake_cublaslt::Last&) {
    beside += collective_done ? 0 : 1;
    return 1e5;
  });
  multiply(*gemm);
  EXPECT_EQ(beside, 0);
  EXPECT_THAT(measured_.products, Not(IsEmpty()));
  message_came = true;
  messages.synchronize();
}

TEST_F(CudaGemm, RecordedProductsTakeTheFirstSuggestionUnlessOneIsKnown) {
  const auto gemm = make(prefer_separate);
  const Tensor x = random_tensor(*cpu_, DType::bf16, {8, 16}, 1), w = random_tensor(*cpu_, DType::bf16, {24, 16}, 2);
  const Tensor bias = random_tensor(*cpu_, DType::bf16, {24}, 3), y = poisoned_tensor(*cpu_, DType::bf16, {8, 24});
  const auto linear = [&](ConstTensorView b) { gemm->linear(stream_, x, w, b, Activation::none, {}, y); };
  linear({});  // takes the workspace
  measured_ = {};
  CudaGraph::record(device_, stream_, [&] { linear(bias); });
  stream_.synchronize();
  EXPECT_THAT(measured_.products, IsEmpty());
  EXPECT_EQ(fake_cublaslt::last().epilogue, CUBLASLT_EPILOGUE_BIAS);
}

TEST_F(CudaGemm, Fp32UsesTf32OnlyIfAllowed) {
  const Tensor x = random_tensor(*cpu_, DType::fp32, {8, 16}, 1), w = random_tensor(*cpu_, DType::fp32, {24, 16}, 2);
  const Tensor y = poisoned_tensor(*cpu_, DType::fp32, {8, 24});
  make(prefer_fused)->linear(stream_, x, w, {}, Activation::none, {}, y);
  EXPECT_EQ(fake_cublaslt::last().compute, CUBLAS_COMPUTE_32F);
  make(prefer_fused, {.allow_tf32 = true, .cache_file = ""})->linear(stream_, x, w, {}, Activation::none, {}, y);
  EXPECT_EQ(fake_cublaslt::last().compute, CUBLAS_COMPUTE_32F_FAST_TF32);
  stream_.synchronize();
}

TEST_F(CudaGemm, Fp64IsRefusedWithTheRemedy) {
  const Tensor x = random_tensor(*cpu_, DType::fp64, {2, 2}, 1), y = poisoned_tensor(*cpu_, DType::fp64, {2, 2});
  EXPECT_THROW(make(prefer_fused)->linear(stream_, x, x, {}, Activation::none, {}, y), ConfigError);
}

}  // namespace
}  // namespace trireme::cuda

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/error.hpp"
#include "tests/app/run_config/ask_model.hpp"

namespace trireme::app {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ModelOptions, FitThePresetsWindowsToTheNumberOfLayers) {
  EXPECT_EQ(ask("--model gemma3-1b --num-layers 7", 512, 257).config.window.layers, "1111101");
  EXPECT_EQ(ask("--model gemma3-1b --num-layers 3", 512, 257).config.window.layers, "");
  EXPECT_EQ(ask("--model gemma3-1b --num-layers 3", 512, 257).config.window.left, 511);
  EXPECT_EQ(ask("--model gemma2-2b --num-layers 4 --window-size 9", 512, 257).config.window.layers, "");
}

TEST(ModelOptions, GiveWindowsToSomeLayersOrAll) {
  const auto window_of = [](const Words& words) {
    const Words model = "--model llama3-8b --num-layers 6";
    const model::AttentionWindow window = ask(model + words, 512, 257).config.window;
    return fmt::format("{} {}", window.left, window.layers);
  };
  EXPECT_EQ(window_of({}), "-1 ");
  EXPECT_EQ(window_of("--window-size -1,0"), "-1 ");
  for (const char* size : {"127,0", "(127,0)", "( 127, 0 )", "127"})
    EXPECT_EQ(window_of({"--window-size", size}), "127 ");
  const auto with_layers = [&](const char* layers) {
    return window_of({"--window-size", "0,0", "--window-attn-skip-freq", layers});
  };
  EXPECT_EQ(with_layers("3"), "0 110110");
  EXPECT_EQ(with_layers("7"), "0 ");
  EXPECT_EQ(with_layers("[1,1,0]*2"), "0 110110");
  EXPECT_EQ(with_layers("[1, 0, 0] + [1]*3"), "0 100111");
  EXPECT_EQ(with_layers("([1]*2+[0]*1)*2"), "0 110110");
  EXPECT_EQ(with_layers("[1]*6"), "0 ");
}

TEST(ModelOptions, RefuseInvalidWindows) {
  const auto expect_problem = [](const Words& words, const std::string& problem) {
    const Words model = "--num-layers 4 --hidden-size 64 --num-attention-heads 4";
    EXPECT_THAT([&] { ask(model + words, 16, 257); }, ThrowsMessage<ConfigError>(HasSubstr(problem)));
  };
  for (const char* size : {"many", "4,", "4,0,0", "(4,0", "-2,0", ""}) {
    expect_problem({"--window-size", size}, fmt::format("--window-size '{}' must be LEFT,0", size));
  }
  expect_problem("--window-size 4,4", "'4,4' would let a causal model attend to 4 later positions: give 4,0");
  expect_problem("--window-size 5000000000,0", "--window-size 5000000000 must be between -1 and 2147483647");
  expect_problem("--window-attn-skip-freq 2", "--window-attn-skip-freq needs --window-size");
  const auto expect_problem_of_layers = [&](const char* layers, const std::string& problem) {
    expect_problem({"--window-size", "4,0", "--window-attn-skip-freq", layers}, problem);
  };
  expect_problem_of_layers("0", "--window-attn-skip-freq 0 must be at least 1");
  expect_problem_of_layers("1", "--window-attn-skip-freq 1 leaves no layer with a window");
  expect_problem_of_layers("[0]*4", "leaves no layer with a window");
  expect_problem_of_layers("[1,0]", "'[1,0]' lists 2 layers of 4");
  for (const char* layers : {"[1,2]", "[1", "[1]*", "[1,0]*x", "1,0", "[1]-[0]", "[1]*99999", "[10]", "x"}) {
    expect_problem_of_layers(layers, fmt::format("--window-attn-skip-freq '{}' must be N or a list", layers));
  }
  expect_problem("--model-type bert --window-size 4,0",
                 "--window-size 4: windows are for causal models, but a BERT attends to both sides");
}

}  // namespace
}  // namespace trireme::app

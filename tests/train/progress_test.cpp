#include "src/train/progress.hpp"

#include <gmock/gmock.h>

#include <map>
#include <vector>

namespace trireme::train {
namespace {

constexpr parallel::Fp8Options history_of_four{.used = true, .history = 4, .largest_of_history = true};
constexpr std::size_t tensors_of_layer = parallel::Fp8Scaling::weights_of_layer * parallel::Fp8Scaling::roles;

/// Magnitudes of two layers, of which only the second has any.
Fp8History two_updates() {
  Fp8History history;
  for (const double size : {14.0, 0.4}) {
    std::vector<double> seen(2 * tensors_of_layer);
    seen[tensors_of_layer + 2] = size;
    seen.back() = 2 * size;
    history.add(seen, history_of_four);
  }
  return history;
}

/// The attribute of a layer whose last tensor has this text.
std::string replaced(const std::string& text) {
  std::string all;
  for (std::size_t i = 1; i < tensors_of_layer; ++i) all += "- ";
  return all + text;
}

SavedState saved_state() {
  return {.progress = {.iteration = 8,
                       .consumed_samples = 32,
                       .skipped = 2,
                       .skipped_in_row = 1,
                       .skipped_at_minimum_scale = 1,
                       .updated_samples = 24,
                       .evaluation_left = true,
                       .tested = false,
                       .noted_losses = 7,
                       .largest_loss = 4.25},
          .updates = 6,
          .loss_scale = {.scale = 65536, .good_updates = 4, .hysteresis_left = -3},
          .expert_loads = {{0, {3, 0.5}}, {11, {0}}},
          .fp8_history = two_updates()};
}

TEST(Progress, IsRestoredFromItsAttributes) {
  const Attributes attributes = attributes_of(saved_state());
  EXPECT_EQ(state_from(attributes), saved_state());
  EXPECT_EQ(progress_from(attributes), saved_state().progress);
  EXPECT_EQ(attributes.texts().at("state.loss_scale"), "65536");
  EXPECT_EQ(attributes.texts().at("state.evaluation_left"), "true");
}

TEST(Progress, FromOlderCheckpointsLacksWhatTheyDidNotStore) {
  Attributes::Texts texts = attributes_of(saved_state()).texts();
  for (const char* name : {"evaluation_left", "tested", "skipped_at_minimum_scale", "noted_losses", "expert_loads.0",
                           "expert_loads.11", "fp8_amax.1"}) {
    EXPECT_EQ(texts.erase(std::string("state.") + name), 1u) << name;
  }
  SavedState expected = saved_state();
  expected.progress.skipped_at_minimum_scale = 0;
  expected.progress.evaluation_left = false;
  expected.progress.noted_losses = 0;
  expected.progress.largest_loss = 0;
  expected.expert_loads.clear();
  expected.fp8_history = {};
  EXPECT_EQ(state_from(Attributes(texts)), expected);
}

TEST(Progress, InvalidValuesAreRefusedByNameAndValue) {
  const Attributes good = attributes_of(saved_state());
  for (const auto& [name, values] : std::map<std::string, std::vector<std::string>>{
           {"iteration", {"abc", "-1", "", "8x", " 8", "99999999999999999999", "7", "1000000"}},
           {"consumed_samples", {"-1", "1e3", "3"}},
           {"skipped", {"-1", "9", "3"}},
           {"skipped_in_row", {"-1", "3", "4294967296"}},
           {"skipped_at_minimum_scale", {"-1", "2"}},
           {"updated_samples", {"-1", "33"}},
           {"evaluation_left", {"yes", ""}},
           {"tested", {"1"}},
           {"noted_losses", {"-1", "9"}},
           {"largest_loss", {"nan", "big"}},
           {"updates", {"-1", "nan", "7"}},
           {"loss_scale", {"nan", "-nan", "inf", "-1", "0", "big"}},
           {"loss_scale_good_updates", {"-1", "0.5"}},
           {"loss_scale_hysteresis_left", {"", "two"}},
           {"expert_loads.0", {"", "1 -2", "1  2", "many"}},
           {"fp8_amax.1",
            {"", "- -", replaced("3"), replaced("3:0:1"), replaced("3:-1"), replaced("101:0"), replaced("")}}}) {
    for (const std::string& value : values) {
      Attributes attributes = good;
      attributes.put("state." + name, value);
      attributes.set_source("here");
      EXPECT_THAT([&] { state_from(attributes); }, testing::ThrowsMessage<CheckpointError>(testing::AllOf(
                                                       testing::StartsWith("here: the attribute state."),
                                                       testing::HasSubstr("state." + name), testing::HasSubstr(value))))
          << value;
    }
    if (name == "skipped_at_minimum_scale" || name == "evaluation_left" || name == "tested" || name == "noted_losses" ||
        name == "expert_loads.0" || name == "fp8_amax.1") {
      continue;
    }
    Attributes::Texts texts = good.texts();
    texts.erase("state." + name);
    EXPECT_THROW(state_from(Attributes(texts)), CheckpointError) << name;
  }
}

TEST(Fp8History, ScalesByTheLatestOrTheLargestOfItsUpdates) {
  Fp8History largest, latest;
  const auto amax = [](Fp8History& history, parallel::Fp8Options options, bool of_history, double size) {
    options.largest_of_history = of_history;
    history.add(std::vector{size}, options);
    return history.amax(options).front();
  };
  // 1.75 times a power of two, at least the magnitude; those of three updates.
  const parallel::Fp8Options three{.used = true, .history = 3};
  const double sizes[] = {3, 0.875, 0.9, 0.1, 0, 0, 0};
  const double of_largest[] = {3.5, 3.5, 3.5, 1.75, 1.75, 0.109375, 0.109375};
  const double of_latest[] = {3.5, 0.875, 1.75, 0.109375, 0.109375, 0.109375, 0.109375};
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(amax(largest, three, true, sizes[i]), of_largest[i]) << i;
    EXPECT_EQ(amax(latest, three, false, sizes[i]), of_latest[i]) << i;
  }
}

}  // namespace
}  // namespace trireme::train

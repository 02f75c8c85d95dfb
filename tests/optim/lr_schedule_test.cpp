#include "src/optim/lr_schedule.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <tuple>
#include <vector>

#include "src/base/error.hpp"

namespace trireme::optim {
namespace {

LrSchedule schedule(LrDecayStyle style, double warmup, std::int64_t decay) {
  return {style, 1e-3, 1e-4, warmup, decay};
}

TEST(LrSchedule, InverseSquareRootFallsFromTheWarmUpAndNotBelowTheMinimum) {
  const LrSchedule lr = schedule(LrDecayStyle::inverse_square_root, 4, 1000);
  EXPECT_DOUBLE_EQ(lr.at(16), 5e-4);
  EXPECT_DOUBLE_EQ(lr.at(64), 2.5e-4);
  EXPECT_EQ(lr.at(900), 1e-4);
  EXPECT_EQ(lr.at(1001), 1e-4);
  EXPECT_DOUBLE_EQ(schedule(LrDecayStyle::inverse_square_root, 0, 1000).at(4), 5e-4);
}

TEST(LrSchedule, BySamplesGivesTheBitsOfUpdatesForBatchesOfOneSize) {
  for (const LrDecayStyle style :
       {LrDecayStyle::constant, LrDecayStyle::linear, LrDecayStyle::cosine, LrDecayStyle::inverse_square_root}) {
    const LrSchedule updates = schedule(style, 7, 50);
    LrSchedule samples = schedule(style, 7 * 24, 50 * 24);
    samples.by_samples = true;
    for (std::int64_t k = 1; k <= 60; ++k) EXPECT_EQ(samples.at(k * 24), updates.at(k)) << k;
  }
}

using Progress = std::vector<std::int64_t>;
/// Values that Megatron-LM computes at each progress: with it, the update of this progress uses the value before.
using Values = std::vector<double>;

TEST(LrSchedule, HasTheValuesOfMegatronLm) {
  const Progress at_the_end = {50, 51, 56, 61, 66, 70, 80};
  const Progress of_samples = {32, 192, 320, 352, 1088, 1632, 2560, 2592, 3200};
  const struct {
    const char* name;
    LrSchedule schedule;
    Progress progress;
    Values values;
  } cases[] = {{"WSD linear",
                {LrDecayStyle::wsd, 0.0006, 2e-05, 8, 70, false, 0.0, WsdDecayStyle::linear, 20},
                {1, 8, 9, 50, 51, 56, 61, 66, 70, 71, 80},
                {7.5e-05, 0.0006, 0.0006, 0.0006, 0.0005709999999999999, 0.0004259999999999999, 0.00028099999999999995,
                 0.00013599999999999994, 2e-05, 2e-05, 2e-05}},
               {"WSD linear, samples of 32, min 0",
                {LrDecayStyle::wsd, 0.001, 0.0, 0, 2048, true, 0.0, WsdDecayStyle::linear, 512},
                {32, 1536, 1568, 1696, 1824, 1952, 2048, 2080, 2240},
                {0.001, 0.001, 0.0009375, 0.0006875, 0.0004375, 0.0001875, 0.0, 0.0, 0.0}},
               {"WSD cosine",
                {LrDecayStyle::wsd, 0.0006, 2e-05, 8, 70, false, 0.0, WsdDecayStyle::cosine, 20},
                at_the_end,
                {0.0006, 0.0005964296187725899, 0.00048045772316481714, 0.00026463400513833293, 7.538507163126526e-05,
                 2e-05, 2e-05}},
               {"WSD exponential",
                {LrDecayStyle::wsd, 0.0006, 2e-05, 8, 70, false, 0.0, WsdDecayStyle::exponential, 20},
                at_the_end,
                {0.0006, 0.0005604861415528208, 0.0003822127797732332, 0.00023230334891754931, 0.00010624504589828021,
                 2e-05, 2e-05}},
               {"WSD minus_sqrt",
                {LrDecayStyle::wsd, 0.0006, 2e-05, 8, 70, false, 0.0, WsdDecayStyle::minus_sqrt, 20},
                at_the_end,
                {0.0006, 0.00047030805730501215, 0.0002823209166470036, 0.0001698604877484515, 8.12322292200488e-05,
                 2e-05, 2e-05}},
               {"WSD linear, whole run anneals",
                {LrDecayStyle::wsd, 0.001, 0.0, 0, 40, false, 0.0, WsdDecayStyle::linear, 40},
                {1, 11, 21, 31, 40},
                {0.000975, 0.000725, 0.000475, 0.000225, 0.0}},
               {"constant, warm-up 10 from init, samples of 32",
                {LrDecayStyle::constant, 0.00015, 1e-05, 320, 2560, true, 1e-05},
                of_samples,
                {2.4e-05, 9.4e-05, 0.00015, 0.00015, 0.00015, 0.00015, 0.00015, 0.00015, 0.00015}},
               {"linear, warm-up 10 from init, samples of 32",
                {LrDecayStyle::linear, 0.00015, 1e-05, 320, 2560, true, 1e-05},
                of_samples,
                {2.4e-05, 9.4e-05, 0.00015, 0.000148, 0.00010199999999999999, 6.8e-05, 1e-05, 1e-05, 1e-05}},
               {"cosine, warm-up 10 from init, samples of 32",
                {LrDecayStyle::cosine, 0.00015, 1e-05, 320, 2560, true, 1e-05},
                of_samples,
                {2.4e-05, 9.4e-05, 0.00015, 0.00014992951465789202, 0.00011317080637310989, 6.137742081033274e-05,
                 1e-05, 1e-05, 1e-05}},
               {"inverse-square-root, warm-up 10 from init, samples of 32",
                {LrDecayStyle::inverse_square_root, 0.00015, 1e-05, 320, 2560, true, 1e-05},
                of_samples,
                {2.4e-05, 9.4e-05, 0.00015, 0.00014301938838683884, 8.134892168199606e-05, 6.642111641550715e-05,
                 5.3033008588991055e-05, 1e-05, 1e-05}},
               {"warm-up fraction not whole: 0.07 x 130 = 9.1 steps",
                {LrDecayStyle::cosine, 0.001, 3e-05, 9.100000000000001, 130, false, 0.0},
                {1, 7, 44, 66, 130},
                {0.00010989010989010988, 0.0007692307692307691, 0.0008138605732191574, 0.000559676336237349, 3e-05}},
               {"GPT-2 2019 recipe scaled: warm-up 1 %, cosine to 1e-5, batch 512",
                {LrDecayStyle::cosine, 0.00015, 1e-05, 1024, 92160, true, 0.0},
                {512, 1024, 1536, 5632, 34304, 51712, 92160, 92672, 102400},
                {7.5e-05, 0.00015, 0.00014998909774058988, 0.00014911874935081166, 0.00010877222105783352,
                 6.770946342228755e-05, 1e-05, 1e-05, 1e-05}}};
  for (const auto& [name, schedule, progress, values] : cases) {
    EXPECT_NO_THROW(schedule.validate()) << name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(schedule.at(progress[i]), values[i], 1e-14 * schedule.maximum) << name << " at " << progress[i];
    }
  }
}

TEST(WeightDecayRamp, HasTheValuesOfMegatronLm) {
  const std::tuple<WeightDecayRamp, Progress, Values> cases[] = {
      {{WeightDecayStyle::linear, 0.0, 0.1, 60},
       {1, 2, 8, 41, 60, 80},
       {0.0016666666666666668, 0.0033333333333333335, 0.013333333333333334, 0.06833333333333334, 0.1, 0.1}},
      {{WeightDecayStyle::linear, 0.02, 0.3, 1920},
       {32, 64, 256, 992, 1920},
       {0.024666666666666667, 0.029333333333333333, 0.05733333333333333, 0.16466666666666666, 0.3}},
      {{WeightDecayStyle::cosine, 0.0, 0.1, 60},
       {1, 2, 8, 41, 60, 80},
       {6.852326227130834e-05, 0.0002739052315863355, 0.004322727117869951, 0.07723195175075137, 0.1, 0.1}},
      {{WeightDecayStyle::cosine, 0.02, 0.3, 1920},
       {32, 64, 256, 992, 1920},
       {0.020191865134359662, 0.02076693464844174, 0.03210363593003586, 0.16732703387401213, 0.3}}};
  for (const auto& [ramp, progress, values] : cases) {
    EXPECT_NO_THROW(ramp.validate());
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(ramp.at(progress[i]), values[i], 1e-14) << progress[i];
  }
  EXPECT_THROW((WeightDecayRamp{WeightDecayStyle::linear, 0.1, 0.01, 100}).validate(), ConfigError);
  EXPECT_THROW((WeightDecayRamp{WeightDecayStyle::linear, -0.1, 0.01, 100}).validate(), ConfigError);
}

TEST(LrSchedule, RefusesSettingsThatContradictEachOther) {
  LrSchedule wsd = schedule(LrDecayStyle::wsd, 5, 20);
  EXPECT_THROW(wsd.validate(), ConfigError);  // without a length of its last part
  wsd.wsd_decay = 15;
  EXPECT_NO_THROW(wsd.validate());
  wsd.wsd_decay = 16;  // begins inside the warm-up
  EXPECT_THROW(wsd.validate(), ConfigError);
  LrSchedule initial = schedule(LrDecayStyle::linear, 5, 20);
  initial.initial = 2e-3;  // above the maximum
  EXPECT_THROW(initial.validate(), ConfigError);
  EXPECT_NO_THROW(schedule(LrDecayStyle::cosine, 5, 20).validate());
  EXPECT_NO_THROW(schedule(LrDecayStyle::constant, 50, 0).validate());
  EXPECT_THROW(schedule(LrDecayStyle::cosine, 20, 20).validate(), ConfigError);
  EXPECT_THROW(schedule(LrDecayStyle::linear, 0, 0).validate(), ConfigError);
  EXPECT_THROW(schedule(LrDecayStyle::linear, -1, 10).validate(), ConfigError);
  EXPECT_THROW((LrSchedule{LrDecayStyle::linear, 1e-4, 1e-3, 0, 10}).validate(), ConfigError);
  EXPECT_THROW((LrSchedule{LrDecayStyle::linear, -1e-4, -1e-3, 0, 10}).validate(), ConfigError);
  EXPECT_THROW((LrSchedule{LrDecayStyle::linear, std::nan(""), 0, 0, 10}).validate(), ConfigError);
  EXPECT_THROW((LrSchedule{LrDecayStyle::linear, std::numeric_limits<double>::infinity(), 0, 0, 10}).validate(),
               ConfigError);
}

}  // namespace
}  // namespace trireme::optim

#include <gmock/gmock.h>

#include "src/base/error.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/fakes/memory_store.hpp"
#include "tests/support/checkpoint_model.hpp"

namespace trireme::checkpoint {
namespace {

using test::CutModel;
using test::SlicedTensor;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class SaveLoad : public testing::Test {
 protected:
  void save_model(CutModel& model, std::int64_t step, int keep_last = 0) {
    save(store, world, {step, {{"seed", "1234"}}, {{"tokenizer", std::string("a\0b", 3)}, {"empty", ""}}},
         model.states(), {keep_last});
  }
  void load_model(CutModel& model, const std::string& name = {}) {
    load(*open_checkpoint(store, world, name), world, model.states());
  }

  MemoryStore store;
  SelfCommunicator world;
};

TEST_F(SaveLoad, EveryPartitionLoadsEveryOtherAndRoundTripsByteForByte) {
  constexpr std::uint64_t seeds = 12;
  for (std::uint64_t a = 0; a < seeds; ++a) {
    for (std::uint64_t b = 0; b < seeds; ++b) {
      CutModel first(a);
      first.fill(a);
      save_model(first, 1);
      CutModel second(1000 + b);
      load_model(second, "step-00000001");
      ASSERT_TRUE(second.holds(a)) << a << " to " << b;
      save_model(second, 2);
      CutModel third(a);
      load_model(third);
      ASSERT_TRUE(third.holds(a)) << b << " to " << a;
    }
  }
}

TEST_F(SaveLoad, TensorsThatDifferAreAllNamedAndNothingIsLoaded) {
  CutModel model(1);
  model.fill(1);
  save_model(model, 1);
  CutModel other(1);
  std::vector<SlicedTensor>& tensors = other.tensors();
  tensors[0].name = "model/h.0.ln_1.scale";                                            // renamed
  tensors[1] = SlicedTensor("model/wte", {16, 12}, {{Box::whole({16, 12}), 0, 192}});  // another shape
  std::vector<StateTensor> states = other.states();
  std::vector<std::int32_t> wrong_type(1);
  states.back() = {"model/scale", {}, {}, 0, TensorView(wrong_type.data(), {}), true};
  const auto step = open_checkpoint(store, world);
  EXPECT_THAT([&] { load(*step, world, states); },
              ThrowsMessage<CheckpointError>(
                  AllOf(HasSubstr("4 tensors differ"), HasSubstr("model/h.0.ln_1.scale: not in the checkpoint"),
                        HasSubstr("model/h.0.ln_1.weight: in the checkpoint only"),
                        HasSubstr("model/wte: fp32 [17, 12] in the checkpoint, fp32 [16, 12]"),
                        HasSubstr("model/scale: fp32 [] in the checkpoint, int32 []"))));
  EXPECT_EQ(tensors[2].data, SlicedTensor(tensors[2].name, tensors[2].shape, tensors[2].slices).data);
}

// Moments may be kept in another type than they were saved in.
TEST_F(SaveLoad, NarrowTypesConvertRoundingToNearestEven) {
  // In bf16 1 + 2^-8 and 1 + 3 * 2^-8 lie between two numbers, and the even ones are 1 and 1 + 2^-6.
  std::vector<float> values = {1, 1 + 0x1p-8f, 1 + 3 * 0x1p-8f, -3e-30f, 0, 2};
  const Shape shape{2, 3};
  save(store, world, {1, {}, {}},
       std::vector<StateTensor>{{"adamw_v/w", shape, Box::whole(shape), 0, TensorView(values.data(), {6}), true}});
  std::vector<bf16> narrow(3);  // the second row
  load(*open_checkpoint(store, world), world,
       std::vector<StateTensor>{{"adamw_v/w", shape, {{1, 0}, {1, 3}}, 0, TensorView(narrow.data(), {3}), true}});
  EXPECT_EQ(narrow[0].bits, bf16(-3e-30f).bits);
  EXPECT_EQ(static_cast<float>(narrow[2]), 2);
  std::vector<bf16> all(6);
  const std::vector<StateTensor> whole = {
      {"adamw_v/w", shape, Box::whole(shape), 0, TensorView(all.data(), {6}), true}};
  load(*open_checkpoint(store, world), world, whole);
  EXPECT_EQ(static_cast<float>(all[1]), 1);
  EXPECT_EQ(static_cast<float>(all[2]), 1 + 0x1p-6f);
  // Back in fp32 they are what was rounded.
  save(store, world, {2, {}, {}}, whole);
  load(*open_checkpoint(store, world), world,
       std::vector<StateTensor>{{"adamw_v/w", shape, Box::whole(shape), 0, TensorView(values.data(), {6}), true}});
  EXPECT_EQ(values, (std::vector<float>{1, 1, 1 + 0x1p-6f, static_cast<float>(bf16(-3e-30f)), 0, 2}));
}

TEST_F(SaveLoad, Fp64LoadsInNarrowerTypesAndTheReverse) {
  const Shape shape{3};
  const auto state = [&]<class T>(std::vector<T>& values) {
    return std::vector<StateTensor>{{"model/w", shape, Box::whole(shape), 0, TensorView(values.data(), {3}), true}};
  };
  std::vector<double> wide{1 + 0x1p-30, -1 - 0x1p-23 - 0x1p-24, 1e300};
  save(store, world, {1, {}, {}}, state(wide));
  std::vector<float> narrow(3);
  load(*open_checkpoint(store, world), world, state(narrow));
  EXPECT_EQ(narrow, (std::vector<float>{1, -1 - 0x1p-22f, std::numeric_limits<float>::infinity()}));
  narrow[2] = 0x1p-149f;
  save(store, world, {2, {}, {}}, state(narrow));
  load(*open_checkpoint(store, world), world, state(wide));
  EXPECT_EQ(wide, (std::vector<double>{1, -1 - 0x1p-22, 0x1p-149}));
}

TEST_F(SaveLoad, TensorsWithoutAWriterOrWithTwoAreRefused) {
  CutModel model(1);
  std::vector<StateTensor> states = model.states();
  EXPECT_NO_THROW(prepare_saving(store, world, states));
  std::vector<StateTensor> twice = states;
  twice.push_back(states[0]);
  EXPECT_THAT([&] { prepare_saving(store, world, twice); }, ThrowsMessage<CheckpointError>(HasSubstr("there twice")));
  EXPECT_THAT(
      [&] {
        save(store, world, {1, {}, {}}, twice);
      },
      ThrowsMessage<CheckpointError>(HasSubstr("there twice")));
  states[0].written_here = false;
  EXPECT_THAT([&] { save(store, world, {1, {}, {}}, states); }, ThrowsMessage<CheckpointError>(HasSubstr("missing")));
  EXPECT_TRUE(store.steps().empty());
  EXPECT_FALSE(has_checkpoint(store, world));
}

TEST_F(SaveLoad, ADamagedStepIsAnErrorIfNamedAndSkippedOtherwise) {
  CutModel model(3);
  for (const std::uint64_t step : {10, 20, 30}) {
    model.fill(step);
    save_model(model, static_cast<std::int64_t>(step));
  }
  const Piece damaged = store.open("step-00000030")->manifest().pieces[1];
  store.file("step-00000030", "rank-00000.h5")[static_cast<std::size_t>(damaged.offset_bytes) + 1] ^= std::byte{4};
  EXPECT_THAT([&] { load_model(model, "step-00000030"); },
              ThrowsMessage<CheckpointError>(AllOf(HasSubstr("rank-00000.h5"), HasSubstr(damaged.tensor))));
  load_model(model);
  EXPECT_TRUE(model.holds(20));
  store.file("step-00000020", "rank-00000.h5").pop_back();
  load_model(model);
  EXPECT_TRUE(model.holds(10));
  store.file("step-00000010", "rank-00000.h5").push_back({});
  EXPECT_THAT([&] { load_model(model); },
              ThrowsMessage<CheckpointError>(AllOf(HasSubstr("is intact"), HasSubstr("step-00000010"),
                                                   HasSubstr("step-00000020"), HasSubstr("step-00000030"))));
  EXPECT_TRUE(has_checkpoint(store, world));
}

TEST_F(SaveLoad, OlderStepsAreRemovedAndLaterOnesKept) {
  CutModel model(3);
  const auto names = [&] {
    std::string all;
    for (const StepEntry& entry : store.steps()) all += fmt::format("{} ", entry.step);
    return all;
  };
  for (const std::int64_t step : {10, 20, 30, 40}) save_model(model, step, 2);
  EXPECT_EQ(names(), "40 30 ");
  save_model(model, 15, 2);  // the run was set back
  EXPECT_EQ(names(), "40 30 15 ");
  save_model(model, 16, 1);
  EXPECT_EQ(names(), "40 30 16 ");
  save_model(model, 50);
  EXPECT_EQ(names(), "50 40 30 16 ");
}

}  // namespace
}  // namespace trireme::checkpoint

// Tensors that are compared with their digests while they are read: no damage is passed over, and no byte read twice.
#include <gmock/gmock.h>

#include "src/checkpoint/load.hpp"
#include "src/checkpoint/save.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/fakes/memory_store.hpp"
#include "tests/support/counted_step.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/random_slices.hpp"

namespace trireme::checkpoint {
namespace {

using test::CountedStep;
using test::message_of;
using test::Random;
using test::random_below;
using test::SlicedTensor;
using testing::HasSubstr;

const Shape shape{9, 4, 5};

class TensorReaderTest : public testing::Test {
 protected:
  /// Saves "model/a" and "model/b", each divided at random.
  void save_divided(Random& random) {
    std::vector<SlicedTensor> model;
    std::vector<StateTensor> states;
    for (const char* name : {"model/a", "model/b"})
      model.emplace_back(name, shape, test::random_partition(random, shape));
    for (SlicedTensor& tensor : model) {
      tensor.fill(1);
      tensor.add_states(states);
    }
    save(store, world, {1, {}, {}}, states, {});
  }
  CountedStep open() { return CountedStep(open_checkpoint(store, world, "", Verification::while_reading)); }
  /// Reads rows of "model/a" one after another, `rows` at a time.
  static void read_rows(TensorReader& reader, SlicedTensor& tensor) {
    for (std::size_t i = 0; i < tensor.slices.size(); ++i) reader.read(tensor.state(i));
  }
  static SlicedTensor in_blocks_of(std::int64_t rows, std::int64_t end = shape[0]) {
    std::vector<TensorSlice> slices;
    const std::int64_t row = shape.numel() / shape[0];
    for (std::int64_t first = 0; first < end; first += rows) {
      slices.push_back({Box::whole(shape), first * row, std::min(rows, end - first) * row});
    }
    return {"model/a", shape, slices};
  }

  MemoryStore store;
  SelfCommunicator world;
};

TEST_F(TensorReaderTest, FromFirstToLastEachByteIsReadOnce) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    save_divided(random);
    CountedStep step = open();
    EXPECT_EQ(step.bytes_read, 0);
    TensorReader reader(step, Verification::while_reading);
    SlicedTensor tensor = in_blocks_of(1 + static_cast<std::int64_t>(seed % 4));
    read_rows(reader, tensor);
    reader.finish();
    EXPECT_TRUE(tensor.holds(1)) << seed;
    // Ranges that lie close together are read with what is between them.
    if (store.open("step-00000001")->manifest().pieces.size() == 2) {
      EXPECT_EQ(step.bytes_read, shape.numel() * 4) << seed;
    }
  }
}

TEST_F(TensorReaderTest, DamageOfAnyByteReadIsFound) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    save_divided(random);
    // In blocks of rows, some of them alone, or in a random partition and order.
    SlicedTensor tensor = seed % 3 == 0   ? in_blocks_of(2)
                          : seed % 3 == 1 ? in_blocks_of(1, 4)
                                          : SlicedTensor("model/a", shape, test::random_partition(random, shape));
    if (seed % 3 == 2) std::ranges::shuffle(tensor.slices, random);
    tensor = SlicedTensor(tensor.name, shape, tensor.slices);
    const auto read = [&] {
      CountedStep step = open();
      TensorReader reader(step, Verification::while_reading);
      read_rows(reader, tensor);
      reader.finish();
    };
    read();
    EXPECT_TRUE(tensor.holds(1)) << seed;
    const Manifest manifest = store.open("step-00000001")->manifest();
    const Piece& piece = manifest.pieces[static_cast<std::size_t>(random_below(random, std::ssize(manifest.pieces)))];
    std::int64_t wanted = 0;
    for (std::size_t i = 0; i < tensor.slices.size(); ++i) {
      for_each_common_range(piece.slice, tensor.slices[i], [&](const ElementRange& range) { wanted += range.count; });
    }
    auto& file = store.file("step-00000001", manifest.files[piece.file].name);
    file[static_cast<std::size_t>(piece.offset_bytes + random_below(random, piece.size_bytes()))] ^= std::byte{1};
    const std::string message = message_of<CheckpointError>(read);
    if (piece.tensor == "model/a" && wanted > 0) {
      EXPECT_THAT(message, HasSubstr("model/a")) << seed;
    } else {
      EXPECT_EQ(message, "nothing was thrown") << seed;
    }
  }
}

TEST_F(TensorReaderTest, AFileOfAnotherSizeIsFoundAtOpening) {
  Random random(1);
  save_divided(random);
  store.file("step-00000001", "rank-00000.h5").pop_back();
  EXPECT_THAT(message_of([&] { open(); }), HasSubstr("bytes instead of"));
}

}  // namespace
}  // namespace trireme::checkpoint

// The gates on machine code, with disassemblies written by hand: each gate must find its fault.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <sstream>

#include "bench/sass/table.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::sass {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Lines = std::vector<std::string>;

/// void trireme::cuda::(anonymous namespace)::f_kernel<trireme::bf16>(long), as it is mangled.
const std::string f_symbol = "_ZN7trireme4cuda12_GLOBAL__N_18f_kernelINS_4bf16EEEvl";

std::string resource_text(int registers, int stack_bytes, const std::string& architecture = "sm_90") {
  return fmt::format(
      "Fatbin elf code:\n================\narch = {}\ncode version = [1,8]\n\nResource usage:\n Common:\n  GLOBAL:0\n"
      " Function {}:\n  REG:{} STACK:{} SHARED:0 LOCAL:0 CONSTANT[0]:544\n",
      architecture, f_symbol, registers, stack_bytes);
}
/// The instructions have the addresses 0x00, 0x10, 0x20...
std::string code_text(const Lines& instructions, const std::string& architecture = "sm_90") {
  std::string text = fmt::format(
      "Fatbin elf code:\n================\narch = {}\n\n\tcode for {}\n\t\tFunction : {}\n\t.headerflags\t@\"x\"\n",
      architecture, architecture, f_symbol);
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    text += fmt::format("        /*{:04x}*/      {} ;      /* 0x00000a00ff017b82 */\n{:60}/* 0x000fe20000000800 */\n",
                        16 * i, instructions[i], "");
  }
  return text;
}
std::vector<Kernel> kernels_of(const Lines& instructions, int registers = 32, int stack_bytes = 0) {
  std::istringstream resources(resource_text(registers, stack_bytes)), code(code_text(instructions));
  return read_kernels(resources, code, "sm_90");
}
Lines faults_of(const std::string& table, const std::vector<Kernel>& kernels) {
  std::istringstream from(table);
  return check(read_table(from, "table"), kernels);
}

const Lines copy_kernel{"LDC R1, c[0x0][0x28]",           "@!P0 BRA 0x50", "LDG.E.128 R4, desc[UR4][R2.64]",
                        "STG.E.128 desc[UR4][R2.64], R4", "EXIT",          "LDG.E.U16 R4, desc[UR4][R2.64]",
                        "STG.E.U16 desc[UR4][R2.64], R4", "EXIT"};
const std::string copy_line = "f_kernel<*16> threads=256 blocks=8 loads=1 stores=1\n";

/// A loop over tiles: one copy, one LDSM for two HMMA, and a block for dropout that is jumped over.
const Lines tile_kernel{"LDGSTS.E.BYPASS.128 [R19], desc[UR10][R8.64]",
                        "LDGSTS.E.BYPASS.128 [R19+0x10], desc[UR10][R8.64]",  // 0x10: head of the loop
                        "LDSM.16.M88.4 R8, [R2]",
                        "HMMA.16816.F32.BF16 R4, R8, R12, R4",
                        "HMMA.16816.F32.BF16 R4, R8, R14, R4",
                        "@!P1 BRA 0x80",
                        "IMAD.WIDE.U32 R22, R26, -0x2daee0ad, RZ",
                        "LOP3.LUT R4, R5, R6, RZ, 0xc0, !PT",
                        "MUFU.EX2 R4, R4",  // 0x80
                        "@P0 BRA 0x10",
                        "EXIT"};
const std::string tile_line = "f_kernel<*16> threads=128 blocks=2 copies=2 hmma=2 ldsm=1 tile=7 dropout=9\n";

TEST(Disassembly, HasTheKernelsOfOneArchitecture) {
  std::istringstream resources(resource_text(99, 8, "sm_80") + resource_text(40, 16));
  EXPECT_THAT(architectures_of(resources), ElementsAre("sm_90"));
  std::istringstream again(resources.str()), code(code_text({"NOP", "EXIT"}, "sm_80") + code_text(copy_kernel));
  const std::vector<Kernel> kernels = read_kernels(again, code, "sm_90");
  ASSERT_EQ(kernels.size(), 1);
  EXPECT_EQ(kernels[0].name, "f_kernel<bf16>");
  EXPECT_EQ(kernels[0].registers, 40);
  EXPECT_EQ(kernels[0].stack_bytes, 16);
  ASSERT_EQ(kernels[0].code.size(), copy_kernel.size());
  EXPECT_TRUE(kernels[0].code[1].predicated);
  EXPECT_EQ(kernels[0].code[1].opcode, "BRA");
  EXPECT_EQ(kernels[0].code[2].address, 0x20);
}

TEST(Disassembly, UnknownSyntaxIsAnError) {
  std::istringstream only_ampere(resource_text(32, 0, "sm_80"));
  EXPECT_THAT(architectures_of(only_ampere), IsEmpty());
  std::istringstream both(resource_text(32, 0, "sm_90a") + resource_text(32, 0));
  EXPECT_THAT(architectures_of(both), ElementsAre("sm_90", "sm_90a"));
  EXPECT_THROW(kernels_of({}), DisassemblyError);
  std::istringstream resources(resource_text(32, 0)), nothing("");
  EXPECT_THROW(read_kernels(resources, nothing, "sm_90"), DisassemblyError);
}

TEST(Table, NamesTheLineOfAMistake) {
  for (const char* mistake : {"f threads=256 blocks=8 lods=1", "f threads=256 blocks=x", "f threads=256", "f blocks"}) {
    std::istringstream from(std::string("# comment\n") + mistake);
    EXPECT_THAT(test::message_of<DisassemblyError>([&] { read_table(from, "table"); }), HasSubstr("table:2"))
        << mistake;
  }
}

TEST(Table, PatternsHaveStars) {
  EXPECT_TRUE(matches("f<*16>", "f<bf16>"));
  EXPECT_TRUE(matches("f<*16, *>", "f<fp16, 64>"));
  EXPECT_FALSE(matches("f<*16>", "f<float>"));
  EXPECT_FALSE(matches("f<*16>", "g_f<bf16>"));
}

TEST(Gates, AKernelWithinItsLimitsPasses) {
  EXPECT_THAT(faults_of(copy_line, kernels_of(copy_kernel)), IsEmpty());
  EXPECT_THAT(faults_of(tile_line, kernels_of(tile_kernel, 128)), IsEmpty());
}

TEST(Gates, FindTooManyRegisters) {
  EXPECT_THAT(
      faults_of(copy_line, kernels_of(copy_kernel, 33)),
      ElementsAre(HasSubstr("f_kernel<bf16> has 33 registers a thread, and table:1 allows at most 32. Of its blocks "
                            "of 256 threads 6 would run at once, not 8. Give its __launch_bounds__"),
                  HasSubstr("has 6 blocks on a multiprocessor")));
}

TEST(Gates, FindOtherLaunchBounds) {
  std::vector<Kernel> kernels = kernels_of(copy_kernel);
  const auto faults_with = [&](const std::string& bounds) {
    std::istringstream ptx(".visible .entry " + f_symbol + "(\n.param .b64 x\n)\n" + bounds + "{\nret;\n}\n");
    read_launch_bounds(ptx, kernels);
    return faults_of(copy_line, kernels);
  };
  EXPECT_THAT(faults_with(".maxntid 256, 1, 1\n"), IsEmpty());
  EXPECT_THAT(faults_with(".maxntid 128, 1, 1\n"), ElementsAre(HasSubstr("128 threads in its launch bounds")));
  EXPECT_THAT(faults_with(".maxntid 512, 1, 1\n"), ElementsAre(HasSubstr("allows at most 256")));
  EXPECT_THAT(faults_with(""), ElementsAre(HasSubstr("has 0 threads in its launch bounds")));
}

TEST(Gates, FindTooMuchSharedMemory) {
  EXPECT_THAT(faults_of("f_kernel<*16> threads=256 blocks=3 shared=80000\n", kernels_of(copy_kernel)),
              ElementsAre(HasSubstr("has 2 blocks on a multiprocessor, and table:1 allows at least 3")));
}

TEST(Gates, FindLocalMemory) {
  Lines spilling = copy_kernel;
  spilling[0] = "STL [R1], R4";
  EXPECT_THAT(faults_of(copy_line, kernels_of(spilling, 32, 8)),
              ElementsAre(HasSubstr("8 bytes of stack"), HasSubstr("1 accesses of local memory")));
  const std::string allowed = "f_kernel<*16> threads=256 blocks=8 stack=8\n";
  EXPECT_THAT(faults_of(allowed, kernels_of(spilling, 32, 8)), IsEmpty());
  EXPECT_THAT(faults_of(allowed, kernels_of(spilling, 32, 16)), ElementsAre(HasSubstr("16 bytes of stack")));
}

TEST(Gates, FindNarrowAccesses) {
  Lines narrow = copy_kernel;
  narrow[3] = "STG.E.64 desc[UR4][R2.64+0x128], R4";
  EXPECT_THAT(faults_of(copy_line, kernels_of(narrow)), ElementsAre(HasSubstr("0 stores of 128 bits")));
  narrow[2] = "LDG.E R4, desc[UR4][R2.64]";
  EXPECT_THAT(faults_of(copy_line, kernels_of(narrow)),
              ElementsAre(HasSubstr("0 loads of 128 bits"), HasSubstr("stores")));
  Lines narrow_copy = tile_kernel;
  narrow_copy[0] = "LDGSTS.E.64 [R19], desc[UR10][R8.64]";
  EXPECT_THAT(faults_of(tile_line, kernels_of(narrow_copy)),
              ElementsAre(HasSubstr("1 asynchronous copies of 128 bits")));
}

TEST(Gates, FindFragmentsThatAreLoadedTwiceOrByOtherLoads) {
  Lines twice = tile_kernel;
  twice[8] = "LDSM.16.M88.4 R8, [R2]";
  EXPECT_THAT(faults_of(tile_line, kernels_of(twice)),
              ElementsAre(HasSubstr("has 2 LDSM a tile, and table:1 allows at most 1")));
  Lines without = tile_kernel;
  without[2] = "LDS.128 R8, [R2]";
  EXPECT_THAT(faults_of(tile_line, kernels_of(without)), ElementsAre(HasSubstr("0 LDSM a tile")));
}

TEST(Gates, FindTooManyOrTooFewMatrixInstructions) {
  Lines more = tile_kernel;
  more[8] = "HMMA.16816.F32.BF16 R4, R8, R12, R4";
  EXPECT_THAT(faults_of(tile_line, kernels_of(more)), ElementsAre(HasSubstr("3 HMMA a tile")));
  Lines fewer = tile_kernel;
  fewer[4] = "FADD R1, R1, R1";
  EXPECT_THAT(faults_of(tile_line, kernels_of(fewer)), ElementsAre(HasSubstr("1 HMMA a tile")));
  EXPECT_THAT(faults_of("f_kernel<*16> threads=128 blocks=2\n", kernels_of(tile_kernel)),
              ElementsAre(HasSubstr("2 products of tensor cores")));
}

TEST(Gates, CountProductsOfWarpGroupsInTheirLoop) {
  // 0x00 to 0x30 copies, 0x40 to 0x70 multiplies.
  Lines groups{"@!P1 BRA 0x40",
               "LDGSTS.E.BYPASS.128 [R19], desc[UR10][R8.64]",
               "@P0 BRA 0x0",
               "EXIT",
               "WARPGROUP.ARRIVE",
               "HGMMA.64x64x16.F32.BF16 R24, R124, gdesc[UR16], RZ, !UPT",
               "WARPGROUP.DEPBAR.LE gsb0, 0x0",
               "@P0 BRA 0x40",
               "EXIT"};
  const std::string line = "f_kernel<*16> threads=128 blocks=2 copies=1 hgmma=1 tile=4 dropout=4\n";
  EXPECT_THAT(faults_of(line, kernels_of(groups)), IsEmpty());
  groups[4] = groups[5];
  EXPECT_THAT(faults_of(line, kernels_of(groups)), ElementsAre(HasSubstr("2 HGMMA a tile")));
  EXPECT_THAT(faults_of("f_kernel<*16> threads=128 blocks=2\n", kernels_of(groups)),
              ElementsAre(HasSubstr("2 products of warp groups")));
}

TEST(Gates, FindTilesWithMoreInstructions) {
  const std::string tight = "f_kernel<*16> threads=128 blocks=2 hmma=2 ldsm=1 tile=6 dropout=8\n";
  EXPECT_THAT(faults_of(tight, kernels_of(tile_kernel)),
              ElementsAre(HasSubstr("7 instructions a tile, and table:1 allows at most 6"),
                          HasSubstr("9 instructions a tile with dropout, and table:1 allows at most 8")));
}

TEST(Gates, FindKernelsWithoutALineAndLinesWithoutAKernel) {
  EXPECT_THAT(
      faults_of("g_kernel threads=256 blocks=8\n", kernels_of(copy_kernel)),
      ElementsAre(HasSubstr("f_kernel<bf16> has no line"), HasSubstr("g_kernel (table:1) is the line of no kernel")));
}

TEST(Paths, CountEveryIterationOfInnerLoops) {
  // 0x10 to 0x60 is the outer loop, 0x20 to 0x40 the inner one.
  const Kernel kernel =
      kernels_of({"NOP", "BAR.SYNC 0x0", "LDSM.16.MT88.4 R8, [R2]", "HMMA.16816.F32.BF16 R4, R8, R12, R4",
                  "@P0 BRA 0x20", "MUFU.EX2 R4, R4", "@P1 BRA 0x10", "EXIT"})[0];
  const Counts inner = hot_path(kernel), outer = hot_path(kernel, {.inner_turns = 2});
  EXPECT_EQ(inner.instructions, 3);
  EXPECT_EQ(outer.instructions, 3 + 2 * 3);
  EXPECT_EQ(outer.hmma, 2);
  EXPECT_THROW(hot_path(kernels_of(tile_kernel)[0], {.inner_turns = 2}), DisassemblyError);
}

}  // namespace
}  // namespace trireme::sass

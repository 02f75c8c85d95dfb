// One fault of each kind that the sanitizer build detects: a test proves that it is detected.

#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

namespace {

// Value unknown to the compiler, which can neither warn of it nor optimise it away.
volatile int unknown_one = 1;

int heap_overflow() {
  const std::vector<int> values(static_cast<std::size_t>(unknown_one));
  return values.data()[unknown_one];
}

int integer_overflow() { return std::numeric_limits<int>::max() + unknown_one; }

int leak() {
  void* volatile lost = std::malloc(static_cast<std::size_t>(unknown_one));
  lost = nullptr;
  return lost != nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string fault = argc == 2 ? argv[1] : "";
  if (fault == "heap_overflow") return heap_overflow();
  if (fault == "integer_overflow") return integer_overflow();
  if (fault == "leak") return leak();
  return EXIT_FAILURE;
}

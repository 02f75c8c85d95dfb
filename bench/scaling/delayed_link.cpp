// A link with a delay, for kernels without netem: two Ethernet devices (TAP). Each receives what is sent to the other.
// The delay holds from the first to the second; the way back takes no time. Runs until it is killed.
//
// usage: delayed_link FIRST SECOND MICROSECONDS    as root; prints "ready" when the devices are there
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

/// Returns a new device of this name, or exits.
int make_device(const char* name) {
  const int device = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  if (device < 0 || ::ioctl(device, TUNSETIFF, &request) != 0) {
    std::fprintf(stderr, "making the device %s by /dev/net/tun failed: %s. It needs root and a kernel with TUN.\n",
                 name, std::strerror(errno));
    std::exit(4);
  }
  return device;
}

struct Frame {
  Clock::time_point due;
  std::vector<char> bytes;
};

/// Reads all pending frames of `device`, due after `delay`.
void read_frames(int device, Clock::duration delay, std::deque<Frame>& frames) {
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t size = ::read(device, buffer.data(), buffer.size());
    if (size <= 0) return;
    frames.push_back({Clock::now() + delay, {buffer.data(), buffer.data() + size}});
  }
}

/// Writes due frames to `device`. Rejected ones are lost, as on a network.
void write_frames(int device, std::deque<Frame>& frames) {
  while (!frames.empty() && frames.front().due <= Clock::now()) {
    [[maybe_unused]] const ssize_t written = ::write(device, frames.front().bytes.data(), frames.front().bytes.size());
    frames.pop_front();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const long delay_us = argc == 4 ? std::strtol(argv[3], nullptr, 10) : -1;
  if (delay_us < 0 || delay_us > 10'000'000) {
    std::fprintf(stderr, "usage: delayed_link FIRST SECOND MICROSECONDS\n");
    return 2;
  }
  const std::array<Clock::duration, 2> delays = {std::chrono::microseconds(delay_us), Clock::duration::zero()};
  prctl(PR_SET_TIMERSLACK, 1UL);  // by default Linux extends a wait by up to 50 us
  const std::array devices = {make_device(argv[1]), make_device(argv[2])};
  std::printf("ready\n");
  std::fflush(stdout);
  std::array<std::deque<Frame>, 2> frames;  // by source device
  for (;;) {
    Clock::duration wait = std::chrono::seconds(1);
    for (const std::deque<Frame>& some : frames) {
      if (!some.empty()) wait = std::min(wait, std::max(some.front().due - Clock::now(), Clock::duration::zero()));
    }
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(wait).count();
    const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
    std::array<pollfd, 2> polled = {pollfd{devices[0], POLLIN, 0}, pollfd{devices[1], POLLIN, 0}};
    ppoll(polled.data(), polled.size(), &timeout, nullptr);
    for (std::size_t from = 0; from < 2; ++from) {
      read_frames(devices[from], delays[from], frames[from]);
      write_frames(devices[1 - from], frames[from]);
    }
  }
}

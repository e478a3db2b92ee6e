// Ports for tests that run side by side.
#pragma once

namespace test_support {

// The first of `count` consecutive TCP ports that are free on 127.0.0.1. No other process that asks
// here gets them before this one has ended, and the kernel gives them to nobody by itself: they lie
// below those that it chooses from. So a test may close one and open it again. Throws
// std::runtime_error if there are none. Any thread.
int free_ports(int count);
inline int free_port() { return free_ports(1); }

}  // namespace test_support

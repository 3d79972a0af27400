// Two members of a world, in threads: what they read where it lies, and what no other process can
// read (memfd_secret stands for memory of a GPU's driver).
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "backends/processes/socket_communicator.h"

namespace megjit::processes {

namespace {

constexpr size_t kCount = 100'000;
using Floats = std::span<float>;

std::array<int, 2> connected_sockets() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    const int one = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(one, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    const int other = accept(listener, nullptr, nullptr);
    close(listener);
    return {one, other};
}

// Empty where Linux has no such memory, or lets nobody lock so much.
Floats secret_floats() {
    const auto file = static_cast<int>(syscall(447 /* memfd_secret */, 0));
    if (file < 0 || ftruncate(file, kCount * sizeof(float)) != 0) return {};
    void* memory =
        mmap(nullptr, kCount * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? Floats() : Floats(static_cast<float*>(memory), kCount);
}

// Each member's `in` and `out`, in a group of two.
struct Members {
    std::array<std::vector<float>, 4> own;
    std::array<Floats, 2> in, out;
    Members() {
        for (auto& each : own) each.resize(kCount);
        for (size_t i = 0; i < 2; ++i) in[i] = own[i], out[i] = own[i + 2];
    }
    void all_reduce() {
        const std::array<int, 2> sockets = connected_sockets();
        const auto run = [&](int rank) {
            const auto i = static_cast<size_t>(rank);
            const auto world = std::make_shared<World>(
                rank, std::vector<int>{sockets[i], sockets[i]}, WorldOptions{.seconds = 60});
            SocketCommunicator group(world, {0, 1});
            for (int times = 0; times < 2; ++times)
                group.all_reduce({"a sum", "here"}, in[i].data(), out[i].data(), kCount,
                                 runtime::DType::f32, runtime::Combine::sum);
        };
        for (size_t i = 0; i < kCount; ++i) {
            in[0][i] = static_cast<float>(i);
            in[1][i] = 3;
        }
        std::thread other(run, 1);
        run(0);
        other.join();
        for (size_t i = 0; i < kCount; ++i) {
            ASSERT_EQ(out[0][i], static_cast<float>(i) + 3) << i;
            ASSERT_EQ(out[1][i], static_cast<float>(i) + 3) << i;
        }
    }
};

}  // namespace

TEST(CrossMemory, MembersReadEachOther) { Members().all_reduce(); }

TEST(CrossMemory, WhatCannotBeReadIsSent) {
    const Floats secret = secret_floats();
    if (secret.empty()) GTEST_SKIP() << "needs memfd_secret";
    EXPECT_EQ(Seal().offer(secret.data()).address, 0u);
    Members one_in;
    one_in.in[1] = secret;
    one_in.all_reduce();
    Members one_out;
    one_out.out[0] = secret;
    one_out.all_reduce();
}

TEST(CrossMemory, WithABrokenSealNothingIsRead) {
    Seal seal;
    const int value = 7;
    int got = 0;
    const Offer offer = seal.offer(&value);
    if (offer.address == 0) GTEST_SKIP() << "the system lets nobody read";
    EXPECT_TRUE(read_offered(offer, 0, &got, sizeof got));
    EXPECT_EQ(got, 7);
    seal.break_up();
    EXPECT_FALSE(read_offered(offer, 0, &got, sizeof got));
}

}  // namespace megjit::processes

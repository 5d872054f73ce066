"""A ResNet on two devices, one after the other, and two such pairs side by side: predicted, and run on this machine.

Each device is a process with one thread. A model that is cut in two is no faster: one device waits while the other
works. Two pairs train on twice as many images, and average the gradients of each half.
"""

import ringlab


def main() -> None:
    answer = ringlab.model_parallel("resnet18", batch_size=32, steps=10)
    print(f"{'':24}{'processes':>10}{'predicted':>12}{'measured':>12}{'error':>8}{'speed-up':>10}{'predicted':>11}")
    for row in answer.rows:
        times = f"{1e3 * row.predicted_s:9.1f} ms{1e3 * row.measured_s:9.1f} ms{row.error:8.0%}"
        print(f"{row.name:24}{row.processes:10}{times}{row.speed_up:10.2f}{row.predicted_speed_up:11.2f}")


if __name__ == "__main__":
    main()

"""What `xupc topo` runs as a job: thread 0 draws the node tree of all threads."""

import xupc


def main() -> None:
    with xupc.init() as team:
        if team.rank == 0:
            print(team.tree)


if __name__ == "__main__":
    main()

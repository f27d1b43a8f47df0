//! The recorded work of a decoding step, and its comparison with an earlier step.

use fgrpo_cuda::{Graph, Node};

/// Work of a decoding step. While it is recorded, it is compared with the work of the earlier step.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    nodes: Vec<Node>,
    /// Number of nodes recorded since [`Sequence::begin`].
    recorded: usize,
    /// Whether the nodes differ from the earlier step's.
    changed: bool,
    /// Graph of exactly these nodes, if one was captured.
    pub(super) graph: Option<Graph>,
}

impl Sequence {
    pub(super) fn begin(&mut self) {
        (self.recorded, self.changed) = (0, false);
    }

    /// Records a node.
    pub(super) fn record(&mut self, node: Node) {
        if self.changed || self.nodes.get(self.recorded) != Some(&node) {
            self.change();
            self.nodes.push(node);
        }
        self.recorded += 1;
    }

    /// Marks the work from the next node on as different from the earlier step's, and drops the graph.
    fn change(&mut self) {
        self.changed = true;
        self.graph = None;
        self.nodes.truncate(self.recorded);
    }

    /// Nodes recorded since [`Sequence::begin`].
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes[..self.recorded]
    }

    /// Whether all nodes equal the nodes of the earlier step.
    pub(super) fn came_before(&mut self) -> bool {
        if self.recorded < self.nodes.len() {
            self.change();
        }
        !self.changed
    }
}

#[cfg(test)]
mod tests {
    use fgrpo_cuda::{Address, Argument, Launch, Shape};

    use super::*;

    fn launch(kernel: &'static str, blocks: usize, address: u64, number: f32) -> Node {
        let arguments = vec![Argument::Address(Address(address)), Argument::F32(number)];
        Node::Launch(Launch { kernel, shape: Shape::of(blocks, 32, 0), arguments })
    }

    /// Whether a step with these nodes repeats the previous one.
    fn record(sequence: &mut Sequence, nodes: &[Node]) -> bool {
        sequence.begin();
        nodes.iter().for_each(|node| sequence.record(node.clone()));
        assert_eq!(sequence.nodes(), nodes);
        sequence.came_before()
    }

    #[test]
    fn work_is_the_same_only_if_all_kernels_grids_arguments_and_the_length_are() {
        let step = [launch("a", 4, 64, 1.0), launch("b", 8, 128, 0.5), launch("a", 4, 64, 1.0)];
        let mut others = vec![step[..2].to_vec(), [&step[..], &step[..1]].concat(), Vec::new()];
        for other in [
            launch("c", 8, 128, 0.5),
            launch("b", 9, 128, 0.5),
            launch("b", 8, 132, 0.5),
            launch("b", 8, 128, 0.25),
            Node::Zero { at: Address(128), bytes: 8 },
        ] {
            others.push(vec![step[0].clone(), other, step[2].clone()]);
        }
        let mut sequence = Sequence::default();
        assert!(!record(&mut sequence, &step), "the first time");
        for other in others {
            assert!(record(&mut sequence, &step), "again");
            assert!(!record(&mut sequence, &other), "{other:?}");
            assert!(record(&mut sequence, &other), "{other:?} again");
            assert!(!record(&mut sequence, &step), "after {other:?}");
        }
    }
}

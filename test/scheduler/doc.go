// Package scheduler tests the t9k-scheduler on a real API server. KWOK simulates the nodes, or the nodes are objects
// without a kubelet if a test itself decides when a pod is deleted. Most tests share one API server and one
// scheduler; each has its own namespace, queues and nodes. Tests that kill the scheduler or change its settings use a
// control plane that no other test uses at the same time.
//
// The table lists the clauses of the scheduler's specification and the tests of each. The column core lists tests of
// package internal/scheduler/core, where a scheduling round is a function of a cluster; the column here lists tests
// of this package. Random clusters test all clauses together: TestProperties and TestNoStarvation in package core,
// and TestMixedLoadKeepsGangsAndQuotas here.
//
//	clause                      core                                    here
//	 1 all or nothing           TestGangIsAllOrNothing                  TestOneOfTwoGangsRunsAtATime
//	                                                                    TestGangPlanRespectsNodeConstraints
//	                                                                    TestGangPlanRespectsVolumes
//	   roles                    TestRolesHaveMinimums                   TestRoleMinimumsAreSeparate
//	   beyond the minimum       TestRolesHaveMinimums                   TestPodsBeyondMinimumBindOneByOne
//	   finished members         TestFinishedMembersCount                TestMixedLoadKeepsGangsAndQuotas
//	                                                                    TestFinishedMembersCount
//	   replacements             TestShortGangGoesFirst                  TestReplacementGoesFirst
//	 2 order                    TestGroupsRunInOrder                    TestFirstInOrderGetsTheRoom
//	                            TestDominantShareDecidesTheOrder        –
//	 3 quota                    TestGroupsStayWithinQuota               TestGroupBeyondQuotaWaitsUntilTheQuotaIsRaised
//	                                                                    TestConcurrentGangsStayWithinQuota
//	                                                                    TestKilledSchedulerKeepsGangsAndQuotas
//	 4 preemption               TestPreemptionChoosesVictims            TestQueuesPreemptTheLowestQueueFirst
//	                            TestPreemptionExampleOfTheSpecification TestPreemptedRoomIsReservedForThePreemptor
//	   no needless evictions    TestPreemptionChoosesVictims            TestPreemptionEvictsOnlyIfTheGangFits
//	   freed room is reserved   TestFreedRoomIsKept                     TestPreemptedRoomIsReservedForThePreemptor
//	 5 backfill, starvation     TestGangIsAllOrNothing                  TestSmallerGroupsBackfill
//	                            TestReservationStartsALargeGroup        TestWaitingGroupGetsReservation
//	   waking by events         –                                       TestEventsWakeWaitingGroups
//	 6 closed, missing queue    TestClosedAndMissingQueuesStartNoGroup  TestClosedQueueStartsNothingNew
//	                                                                    TestEventsWakeWaitingGroups
//	                                                                    TestAdmissionEnforcesQueuesAndLabels
//	 7 who may use a queue      –                                       TestAdmissionEnforcesQueuesAndLabels
//	 8 maxDuration              –                                       TestStatusOfQueuesAndGroupsIsKept
//	 9 resourceShapeProfile     TestPodsThatAreTooLargeWait             TestPodsLargerThanTheProfileDoNotStart
//	10 topology                 TestGangsFollowTheirTopologyPolicy      TestGangIsPlacedByTopology
//	                                                                    TestReplacementStaysInTheGangsZone
//	11 restart                  TestStrandedGangIsEvicted               TestKilledSchedulerKeepsGangsAndQuotas
//	                                                                    TestSecondReplicaTakesOver
//	                                                                    TestPartlyBoundGangIsCompletedOrEvicted
//	12 status                   –                                       TestStatusOfQueuesAndGroupsIsKept
//	13 default queue            –                                       TestStatusOfQueuesAndGroupsIsKept
//	                                                                    TestAPIServerValidatesQueuesAndGroups
//	   default scheduler's pods –                                       TestSchedulersDoNotOvercommitNodes
//	                                                                    TestPreemptedRoomIsReservedForThePreemptor
//
// In the tests of survive_test.go, requests of the scheduler fail (-faults); docs/reliability.md lists these tests.
//
// Some tests are small by default and can be made large: -mixed, -two-gangs 1000, -kills 100, -churns 100, -leaders 10.
package scheduler
